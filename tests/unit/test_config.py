import logging

import pytest

from millpond import Application, ConnectionConfig
from millpond.config import Config, groups_for
from millpond.errors import ConfigError


@pytest.mark.parametrize(
    "options",
    [
        {"consumer_group": ""},
        {"consumer_group": "a/b"},
        {"consumer_group": ".."},
        {"consumer_group": None},
        {"auto_offset_reset": "newest"},
        {"auto_offset_reset": None},
        {"on_error": "ignore"},
        {"persistence": "memory"},
        {"commit_interval": -1},
        {"commit_interval": "5"},
        {"commit_interval": None},
        {"commit_interval": float("nan")},
        {"max_records_per_batch": 0},
        {"max_records_per_batch": 1.5},
        {"max_records_per_batch": True},
        {"on_processing_error": "print"},
    ],
    ids=str,
)
def test_an_option_that_cannot_work_is_refused_at_once(options):
    with pytest.raises(ConfigError, match="Fix:"):
        Config(**options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"consumer_group": "my.group-1_x"},
        {"auto_offset_reset": "earliest"},
        {"auto_offset_reset": "error"},
        {"on_error": "dead-letter"},
        {"persistence": "none"},
        {"commit_interval": 5},
        {"commit_interval": 0.5},
        {"max_records_per_batch": 1},
        {"on_processing_error": print},
    ],
    ids=str,
)
def test_options_that_work_are_taken(options):
    config = Config(**options)

    assert all(getattr(config, name) == value for name, value in options.items())


def test_only_the_broker_may_be_given_by_position():
    with pytest.raises(TypeError):
        Application(None, "group")


def test_a_loglevel_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="Fix:"):
        Application(loglevel="LOUD")


def test_no_loglevel_leaves_logging_alone():
    logger = logging.getLogger("millpond")
    before = (logger.level, list(logger.handlers), logger.propagate)

    Application(loglevel=None)

    assert (logger.level, list(logger.handlers), logger.propagate) == before


def test_an_application_makes_no_folder_before_it_runs(tmp_path):
    app = Application(state_dir=tmp_path / "s", topics_dir=tmp_path / "t", loglevel=None)
    app.dataframe(app.topic("in")).to_topic(app.topic("out"))
    app.explain()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("source", [5, object(), "text", b"bytes", {"a": 1}])
def test_a_source_that_cannot_be_read_is_refused(tmp_path, source):
    app = Application(state_dir=tmp_path, topics_dir=tmp_path, loglevel=None)

    with pytest.raises(ConfigError, match="Fix:"):
        app.dataframe(source=source)


def test_a_registered_type_can_be_kept(tmp_path):
    import enum

    from millpond.testing import run_local

    app = Application(state_dir=tmp_path, topics_dir=tmp_path, loglevel=None)

    @app.register_type
    class Color(enum.Enum):
        RED = 1

    def keep(value, state):
        state.set("color", Color.RED)
        return state.get("color")

    sdf = app.dataframe(source=[Color.RED]).apply(keep, stateful=True)

    assert run_local(sdf, codec=app.codec) == [Color.RED]


@pytest.mark.parametrize("partitions", ["0", "abc", "-1", "1.5", "", 0, 10_001, None])
def test_a_number_of_partitions_that_cannot_be_is_refused(partitions):
    with pytest.raises(ConfigError, match=r"shuffle.partitions must be 1 to 10,000(.|\n)*Fix: "):
        Config(spark_config={"spark.sql.shuffle.partitions": partitions})


def test_new_state_has_key_groups_by_its_partitions():
    found = {n: groups_for(n, is_local=True) for n in (1, 2, 3, 8, 64, 200, 5_000)}
    assert found == {1: 32, 2: 32, 3: 48, 8: 128, 64: 1024, 200: 1024, 5_000: 5_000}
    # A cluster may have told of two cores only when the first run begins.
    assert [groups_for(n, is_local=False) for n in (2, 8, 20)] == [128, 128, 320]


def test_a_configuration_shows_no_secret():
    app = Application(
        ConnectionConfig(
            "kafka:9092", sasl_username="ann", sasl_password="tr0ub4dor",
            extra={"ssl.keystore.password": "tr0ub4dor", "plugin.x": "user=a;password=tr0ub4dor"},
        ),
        consumer_extra_config={"sasl.password": "tr0ub4dor"},
        producer_extra_config={"sasl.password": "tr0ub4dor"},
        spark_config={"spark.hadoop.fs.s3a.secret.key": "tr0ub4dor"},
        loglevel=None,
    )  # fmt: skip

    assert "kafka:9092" in repr(app.config)
    for shown in (app.config, app, app.broker, vars(app.broker), app.broker.producer):
        assert "tr0ub4dor" not in repr(shown)
