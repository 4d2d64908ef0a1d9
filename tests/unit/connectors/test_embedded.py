"""Topics that are missing: created, with a warning where the name may be a mistake, or refused."""

import shlex

import pytest
from typer.testing import CliRunner

from millpond import Application
from millpond.cli.main import command
from millpond.connectors.topic import TopicConfig
from millpond.errors import TopicError


@pytest.fixture
def make_app(tmp_path):
    def make(**options):
        return Application(
            state_dir=tmp_path / "state",
            topics_dir=tmp_path / "the topics",
            loglevel=None,
            **options,
        )

    return make


def warnings(caplog, app, *names):
    caplog.clear()
    for name in names:
        app.broker.prepare(app.topic(name), reads=True)
    return caplog.messages


def test_an_input_topic_that_nobody_wrote_to_is_warned_about_until_somebody_does(make_app, caplog):
    app = make_app()
    with app.get_producer() as producer:
        producer.produce("clicks", b"1")
        producer.produce("totals", b"1")
    text = (
        "input topic 'clikcs' did not exist and was created; nothing has been written to it. "
        "Topics there are: clicks, totals. Did you mean 'clicks'?"
    )

    assert warnings(caplog, app, "clikcs") == [text]
    assert warnings(caplog, make_app(), "clikcs", "clicks") == [text]
    with app.get_producer() as producer:
        producer.produce("clikcs", b"1")

    assert warnings(caplog, app, "clikcs") == []


def test_the_first_input_topic_of_all_has_no_others_to_be_compared_with(make_app, caplog):
    (text,) = warnings(caplog, make_app(), "clicks")

    assert text.endswith("nothing has been written to it. There are no other topics.")


def test_names_that_are_not_alike_are_listed_and_not_proposed(make_app, caplog):
    app = make_app()
    for number in range(12):
        app.broker.prepare(app.topic(f"t{number:02}"))

    (text,) = warnings(caplog, app, "payments")

    assert text.endswith(
        "Topics there are: t00, t01, t02, t03, t04, t05, t06, t07, t08, t09 and more."
    )


@pytest.mark.parametrize("is_first", [True, False])
def test_a_topic_that_was_created_on_purpose_is_not_warned_about(make_app, caplog, is_first):
    app = make_app()
    if not is_first:
        assert warnings(caplog, app, "clicks") != []

    folder = str(app.config.topics_dir)
    done = CliRunner().invoke(command, ["topics", "create", "clicks", "--topics-dir", folder])

    assert done.exit_code == 0
    assert warnings(caplog, app, "clicks") == []


def test_an_output_topic_is_not_warned_about(make_app, caplog):
    app = make_app()
    app.broker.prepare(app.topic("totals"))

    assert warnings(caplog, app, "totals") == []


@pytest.mark.parametrize("partitions", [1, 3])
def test_without_auto_create_topics_the_fix_creates_the_topic(make_app, partitions):
    app = make_app(auto_create_topics=False)
    topic = app.topic("clicks", config=TopicConfig(num_partitions=partitions))
    with app.get_producer() as producer:
        with pytest.raises(TopicError, match="auto_create_topics is off(.|\n)*Fix:") as caught:
            producer.produce(topic, {"n": 1})
        with pytest.raises(TopicError, match="auto_create_topics is off(.|\n)*Fix:"):
            app.broker.prepare(topic)
        fix = shlex.split(str(caught.value).partition("Fix: ")[2])

        assert CliRunner().invoke(command, fix[1:]).exit_code == 0

        producer.produce(topic, {"n": 1})
    assert [record.value for record in app.get_consumer().read("clicks")] == [{"n": 1}]
    assert app.broker.listed() == [("clicks", partitions, 1)]
