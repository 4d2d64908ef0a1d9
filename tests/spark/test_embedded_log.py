"""The embedded log under a running program: merged segments, damaged ones, topics by mistake."""

from __future__ import annotations

import shlex

import pytest
from typer.testing import CliRunner

from millpond.cli.main import command
from millpond.errors import DamagedTopicError, TopicError

pytestmark = pytest.mark.spark


def count(value, state):
    state.set("n", state.get("n", 0) + 1)
    return value["i"], state.get("n")


def write(app, numbers):
    for i in numbers:
        with app.get_producer() as producer:  # a segment each
            producer.produce("clicks", b'{"i": %d}' % i, "ann")


def test_a_run_goes_on_after_its_input_was_merged_damaged_and_restored(make_app, tmp_path):
    app = make_app()
    app.dataframe(app.topic("clicks")).apply(count, stateful=True)
    write(app, range(70))
    assert app.run(drain=True) == [(i, i + 1) for i in range(70)]
    write(app, range(70, 140))
    app.broker._log.merge("clicks")
    files = sorted((tmp_path / "topics" / "clicks" / "0").glob("*.arrow"))
    assert len(files) < 70
    last = files[-1].read_bytes()
    files[-1].write_bytes(last.replace(b'"i": 139', b'"i": 138'))

    with pytest.raises(DamagedTopicError, match="partition 0.\nFix: restore the file"):
        app.run(drain=True)
    skipping = make_app("other", on_lost_records="skip")
    skipping.dataframe(skipping.topic("clicks")).apply(count, stateful=True)
    first = [int(name) for name in files[-1].stem.split("-")][0]
    assert skipping.run(drain=True) == [(i, i + 1) for i in range(first)]
    files[-1].write_bytes(last)

    assert app.run(drain=True) == [(i, i + 1) for i in range(70, 140)]


def test_a_misspelt_input_topic_is_refused_or_warned_about(make_app, caplog):
    caplog.set_level("INFO", logger="millpond")
    careful = make_app(auto_create_topics=False)
    careful.dataframe(careful.topic("clikcs")).apply(count, stateful=True)
    write(make_app(), range(1))

    with pytest.raises(TopicError, match="Did you mean 'clicks'(.|\n)*Fix: ") as caught:
        careful.run(drain=True)
    app = make_app("other")
    app.dataframe(app.topic("clikcs"))
    assert app.run(drain=True) == []

    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == [
        "input topic 'clikcs' did not exist and was created; nothing has been written to it. "
        "Topics there are: clicks. Did you mean 'clicks'?"
    ]
    fix = shlex.split(str(caught.value).partition("Fix: ")[2])
    assert CliRunner().invoke(command, fix[1:]).exit_code == 0
    with careful.get_producer() as producer:
        producer.produce("clikcs", {"i": 7}, "ann")
    assert careful.run(drain=True) == [(7, 1)]
