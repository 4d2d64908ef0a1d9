"""The embedded log under a running program: merged segments, damaged ones, topics by mistake."""

from __future__ import annotations

import pytest

from millpond.errors import DamagedTopicError

pytestmark = pytest.mark.spark


def count(value, state):
    state.set("n", state.get("n", 0) + 1)
    return value["i"], state.get("n")


def write(app, numbers):
    for i in numbers:
        with app.get_producer() as producer:  # a segment each
            producer.produce("clicks", {"i": i}, "ann")


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
    files[-1].write_bytes(last.replace(b'"i":139', b'"i":138').replace(b'"i": 139', b'"i": 138'))

    with pytest.raises(DamagedTopicError, match="partition 0.\nFix: restore the file"):
        app.run(drain=True)
    files[-1].write_bytes(last)

    assert app.run(drain=True) == [(i, i + 1) for i in range(70, 140)]
