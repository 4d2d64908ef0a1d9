import logging

import pytest

import millpond as mp
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
    # A cluster may have reported two cores only when the first run begins.
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


# --- options that belong together -----------------------------------------------------------


def test_options_of_state_kafka_and_spark_are_objects(tmp_path):
    state = mp.StateOptions(
        ttl=60_000,
        recover="auto",
        on_change="accept",
        durability="process",
        persistence="none",
    )
    kafka = mp.KafkaOptions(
        processing_guarantee="at-least-once",
        consumer_extra_config={"a": 1},
        producer_extra_config={"b": 2},
        broker_availability_timeout=5,
    )
    spark = mp.SparkOptions(master="local[3]", config={"c": "3"})

    app = Application(
        "host:9092", state=state, kafka=kafka, spark=spark, state_dir=tmp_path, loglevel=None
    )

    assert app.config.state_ttl_ms == 60_000
    assert (app.config.recover, app.config.on_state_change) == ("auto", "accept")
    assert (app.config.durability, app.config.persistence) == ("process", "none")
    assert app.config.processing_guarantee == "at-least-once"
    assert app.config.consumer_extra_config == {"a": 1}
    assert app.config.producer_extra_config == {"b": 2}
    assert app.config.connection.patience == 5
    assert (app.config.master, app.config.spark_config) == ("local[3]", {"c": "3"})


def test_each_of_them_may_be_a_keyword_of_its_own(tmp_path):
    one_by_one = Application(
        "host:9092",
        processing_guarantee="at-least-once",
        consumer_extra_config={"a": 1},
        producer_extra_config=None,
        broker_availability_timeout=5,
        master="local[3]",
        spark_config={"c": "3"},
        state_ttl=60_000,
        recover="auto",
        on_state_change="accept",
        durability="process",
        persistence="none",
        loglevel=None,
    )
    together = Application(
        "host:9092",
        kafka=mp.KafkaOptions(
            processing_guarantee="at-least-once",
            consumer_extra_config={"a": 1},
            broker_availability_timeout=5,
        ),
        spark=mp.SparkOptions(master="local[3]", config={"c": "3"}),
        state=mp.StateOptions(
            ttl=60_000,
            recover="auto",
            on_change="accept",
            durability="process",
            persistence="none",
        ),
        loglevel=None,
    )

    assert one_by_one.config == together.config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka": {}}, r"kafka= takes KafkaOptions, got \{\} (.|\n)*Fix: kafka=KafkaOptions"),
        (
            {"kafka": mp.KafkaOptions(), "processing_guarantee": "at-least-once"},
            r"kafka=KafkaOptions\(...\), and processing_guarantee= beside it \(test_config",
        ),
        (
            {"spark": mp.SparkOptions(), "spark_config": {"a": "b"}},
            r"and spark_config= beside it(.|\n)*Fix: SparkOptions\(config=...\) only",
        ),
        (
            {"state": mp.StateOptions(), "on_state_change": "accept"},
            r"and on_state_change= beside it(.|\n)*Fix: StateOptions\(on_change=...\) only",
        ),
        ({"state": "state"}, r"state= takes StateOptions, got 'state'"),
        ({"kafka": mp.KafkaOptions(processing_guarantee="once")}, "must be one of 'exactly-once'"),
    ],
)
def test_options_that_contradict_one_another_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Application(**options)


def test_options_show_no_secrets():
    options = mp.KafkaOptions(producer_extra_config={"sasl.password": "hunter2"})

    assert "hunter2" not in repr(options)
