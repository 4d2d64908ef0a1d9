"""State that is looked into and changed manually, on a real checkpoint."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from ledger import PAYMENTS, USERS, outputs, payments, produce, total_of
from typer.testing import CliRunner

import millpond as mp
from millpond import admin
from millpond.cli.main import command
from millpond.config import PARTITIONS
from millpond.errors import ConfigError, GroupInUseError, StateError

pytestmark = pytest.mark.spark


def everything(state):
    return sorted((i.scope, str(i.key), i.store, i.name, str(i.value)) for i in state.scan())


# --- looking --------------------------------------------------------------------------------


def test_state_can_be_looked_into_at_any_batch(app):
    with admin.open(app) as state:
        info = state.info()
        assert (info.group, info.generation, info.generations) == ("payments", 1, [1])
        assert info.stores == ["payments/default", "payments/kind/default"]
        assert (info.first_batch, info.last_batch, info.keys) == (0, 9, 9)
        assert info.watermarks["payments"] >= PAYMENTS[80][2]
        assert not info.running

        for batch in (0, 3, 9):
            done = PAYMENTS[: 10 * (batch + 1)]
            found = state.get("user-3", store="payments", at=batch)
            assert found["total"] == total_of("user-3", done)
        assert state.get("user-3")["seen"] == {"last": 94}
        assert state.get("even", store="payments/kind") == {"count": 50}
        assert state.get("nobody") == {}

        by_time = datetime.fromtimestamp(info.last_commit_ms / 1000, UTC)
        assert state.get("user-3", at=by_time)["total"] == total_of("user-3", PAYMENTS)
        with pytest.raises(StateError, match=r"batch 77 is not kept; there are 0 to 9(.|\n)*Fix:"):
            state.get("user-3", at=77)
        with pytest.raises(StateError, match=r"no batch is kept from(.|\n)*Fix:"):
            state.get("user-3", at=datetime(2020, 1, 1, tzinfo=UTC))

        found = list(state.scan(prefix="user", where=lambda item: item.name == "total"))
        assert {(i.key, i.value) for i in found} == {(u, total_of(u, PAYMENTS)) for u in USERS}
        assert {i.key for i in state.scan(store="payments/kind")} == {"even", "odd"}
        expiring = next(i for i in state.scan() if i.name == "seen" and i.key == "user-3")
        assert expiring.expires == 1_000_000 + 94_000 + 3_600_000

        changed = list(state.diff(8, 9, store="payments"))
        assert {d.key for d in changed} == set(USERS)
        total = next(d for d in changed if d.key == "user-3" and d.name == "total")
        assert (total.before, total.after) == (
            total_of("user-3", PAYMENTS[:90]),
            total_of("user-3", PAYMENTS),
        )

        timers = {timer.key: timer for timer in state.timers()}
        assert set(timers) == set(USERS)
        assert timers["user-3"].at == 1_000_000 + 94_000 + 600_000

        largest = state.top(3)
        assert len(largest) == 3 and largest[0].bytes >= largest[1].bytes > 0
        busiest = state.top(20, by="changes")
        assert {k.key: k.changes for k in busiest} == {
            "even": 10,
            "odd": 10,
            **{user: len({n // 10 for n in range(u, 100, 7)}) for u, user in enumerate(USERS)},
        }


def test_the_history_of_a_key_has_the_records_that_caused_each_change(app):
    with admin.open(app) as state:
        changes = [c for c in state.history("user-3") if c.name == "total"]

    mine = [(n, value) for n, (key, value, _) in enumerate(PAYMENTS) if key == "user-3"]
    batches = sorted({n // 10 for n, _ in mine})
    assert [c.batch for c in changes] == batches
    assert changes[0].is_new and changes[0].before is None
    for change in changes:
        assert change.after == total_of("user-3", PAYMENTS[: 10 * (change.batch + 1)])
        causes = [(n, value) for n, value in mine if n // 10 == change.batch]
        assert [(r.offset, r.value) for r in change.records] == causes


def test_state_is_read_without_the_program(app, spark, tmp_path):
    with admin.open(tmp_path / "state", spark=spark) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS)
        assert len(state.history("even", store="payments/kind")) == 10


def test_state_is_read_while_the_application_runs_and_not_changed(app, spark):
    with app_running(app), admin.open(app) as state:
        assert state.info().running
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS)
        with pytest.raises(GroupInUseError, match="Fix:"):
            state.set("user-3", {"total": 0}, store="payments")
        with pytest.raises(GroupInUseError, match="Fix:"):
            state.rewind(3)


@pytest.mark.parametrize(("config", "parts"), [({}, 2), ({PARTITIONS: "3"}, 3)])
def test_reading_state_is_divided_by_core_or_as_the_user_says(app, make_app, config, parts):
    app = payments(make_app, spark_config=config)
    with admin.open(app) as state:
        rows = state._opened.reader(state._opened.manifest()).rows(9)

    assert rows.rdd.getNumPartitions() == parts  # and not 200, as Spark would


def app_running(app):
    """What a run holds."""
    from millpond.storage.directory import StateDirectory

    return StateDirectory(app.config.state_dir, "payments").held("running")


# --- back in time ---------------------------------------------------------------------------


def test_after_a_rewind_outputs_are_not_written_again_and_all_is_as_it_was(app):
    before = outputs(app)
    with admin.open(app) as state:
        everything_before = everything(state)
        meant = state.rewind(4, dry_run=True)
        assert (meant.batches, meant.records) == (5, 50)
        assert "not written again" in str(meant)
        assert state.info().last_batch == 9

        state.rewind(4)
        assert state.info().last_batch == 4
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS[:50])

    more = [("user-3", {"amount": 1000, "kind": "even"}, 1_100_000)]
    produce(app, more)
    app.run(drain=True)

    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS + more)
        assert state.info().last_batch == 10
        assert [entry["what"] for entry in state.audit()] == ["rewind"]
        at_nine = [i for i in everything_before if i[0] == "payments" and i[1] != "user-3"]
        assert set(at_nine) <= set(everything(state))
    assert outputs(app)[: len(before)] == before
    assert len(outputs(app)) == len(before) + 1


def test_a_rewind_may_write_outputs_again(app):
    before = outputs(app)
    with admin.open(app) as state:
        meant = state.rewind(4, outputs="again")
        assert "readers see them twice" in str(meant)

    app.run(drain=True)

    assert outputs(app) == before + before[50:]
    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS)


# --- copies ---------------------------------------------------------------------------------


def test_a_fork_and_its_origin_go_on_by_themselves(app, make_app):
    with admin.open(app) as state:
        assert state.fork("copy", at=6) == 6
        with pytest.raises(StateError, match=r"already(.|\n)*Fix:"):
            state.fork("copy")

    copy = payments(make_app, "copy")
    copy.run(drain=True)
    more = [("user-3", {"amount": 1000, "kind": "even"}, 1_100_000)]
    produce(app, more)
    app.run(drain=True)

    with admin.open(app) as state, admin.open(copy) as copied:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS + more)
        assert copied.get("user-3")["total"] == total_of("user-3", PAYMENTS)
    assert len(outputs(copy, "copy")) == 30  # what comes after batch 6


def test_a_backup_can_be_restored(app, tmp_path):
    with admin.open(app) as state:
        assert state.backup(tmp_path / "saved") == 9
        before = everything(state)
        state.delete("user-3")
        assert everything(state) != before

        assert state.restore(tmp_path / "saved") == 9
        assert everything(state) == before
        assert [entry["what"] for entry in state.audit()] == ["delete", "restore"]
    produce(app, [("user-3", {"amount": 1, "kind": "odd"}, 1_100_000)])
    app.run(drain=True)
    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS) + 1


# --- edits ----------------------------------------------------------------------------------


def test_values_can_be_set_and_keys_deleted(app):
    with admin.open(app) as state:
        assert state.set("user-3", {"total": 5_000, "note": ("by", "hand")}, store="payments") == 2
        assert state.delete("user-4") > 0
        assert state.get("user-3") == {
            "total": 5_000,
            "seen": {"last": 94},
            "note": ("by", "hand"),
        }
        assert state.get("user-4") == {}
        assert "user-4" not in {timer.key for timer in state.timers()}
        assert state.get("user-3", at=9)["total"] == total_of("user-3", PAYMENTS)
        audit = state.audit()
        assert [(e["what"], e["changed"]) for e in audit][0] == ("set", 2)

    before = outputs(app)
    produce(app, [(user, {"amount": 1, "kind": "odd"}, 1_100_000) for user in USERS[3:5]])
    app.run(drain=True)

    assert [value["total"] for value in outputs(app)[len(before) :]] == [5_001, 1]


def test_an_edit_between_a_batch_that_was_begun_and_its_end_writes_nothing_twice(app, tmp_path):
    before = outputs(app)
    # As if it had been killed between the delivery of the last batch and its commit.
    generation = tmp_path / "state" / "payments" / "generations" / "0001"
    for name in ("9", ".9.crc"):
        (generation / "commits" / name).unlink()
    with admin.open(app) as state:
        assert state.info().last_batch == 8
        state.set("nobody", {"total": 7}, store="payments")
    app.run(drain=True)

    assert outputs(app) == before
    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS)
        assert state.get("nobody") == {"total": 7}


def test_a_rename_is_refused_and_then_the_state_is_moved(app, make_app):
    renamed = payments(make_app, source="orders")
    with pytest.raises(StateError, match="millpond state rename APP.py payments"):
        renamed.run(drain=True)

    with admin.open(app) as state:
        with pytest.raises(StateError, match="Fix:"):
            state.rename("nothing", "orders")
        before = everything(state)
        state.rename("payments/kind", "orders/kind")
        state.rename("payments", "orders")
        after = everything(state)
    assert after == [(i[0].replace("payments", "orders"), *i[1:]) for i in before]

    produce(renamed, [("user-3", {"amount": 1, "kind": "odd"}, 1_100_000)], "orders")
    renamed.run(drain=True)
    with admin.open(renamed) as state:
        assert state.get("user-3", store="orders")["total"] == total_of("user-3", PAYMENTS) + 1


# --- parallelism ----------------------------------------------------------------------------


def test_state_is_rescaled_and_rewound_across_it(app):
    with admin.open(app) as state:
        before = everything(state)
        assert state.rescale(5).partitions == 5
        assert everything(state) == before
    more = [("user-3", {"amount": 1, "kind": "odd"}, 1_100_000)]
    produce(app, more)
    app.run(drain=True)
    with admin.open(app) as state:
        assert state.rescale(1).partitions_before == 5
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS + more)
        assert [c.after for c in state.history("user-3") if c.name == "total"][-1] == total_of(
            "user-3", PAYMENTS + more
        )
        rewound = state.rewind(9)  # the last one before the first rescale
        assert str(rewound).endswith("; the state is in 2 parts again, not in 1")
        state.rewind(7)
        assert state.info().partitions == 2
    written = outputs(app)
    app.run(drain=True)

    assert outputs(app) == written
    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS + more)
        with pytest.raises(ConfigError, match="Fix:"):
            state.rescale(1000)
        with pytest.raises(ConfigError, match=r"2 partition\(s\) already; nothing(.|\n)*Fix:"):
            state.rescale(2)


# --- history before the first run -----------------------------------------------------------


def test_a_backfill_makes_the_state_with_which_the_live_run_goes_on(make_app):
    app = payments(make_app)
    produce(app, PAYMENTS)

    assert app.backfill(until={"payments": {0: 60}}) == 60

    assert outputs(app) == []
    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS[:60])
    app.run(drain=True)
    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS)
    assert len(outputs(app)) == 40
    with pytest.raises(StateError, match=r"state already(.|\n)*Fix:"):
        app.backfill()


@pytest.mark.parametrize("with_outputs", [False, True])
def test_records_that_fail_in_a_backfill_are_written_to_the_dead_letters(
    make_app, caplog, with_outputs
):
    caplog.set_level("INFO", logger="millpond")
    app = make_app(on_error="dead-letter", max_records_per_batch=3)
    sdf = app.dataframe(app.topic("in")).apply(lambda value: 10 // value["n"])
    sdf.to_topic(app.topic("out"))
    with app.get_producer() as producer:
        for n in (1, 0, 5, 2, 0, 10):
            producer.produce("in", {"n": n})

    assert app.backfill(outputs=with_outputs) == 6

    written = 4 if with_outputs else 0
    consumer = app.get_consumer()
    assert len(list(consumer.read("out"))) == written
    assert [r.value for r in consumer.read("test.dead-letters")] == [b'{"n":0}', b'{"n":0}']
    assert (
        "2 record(s) of the backfill failed and were written to topic 'test.dead-letters'"
        in caplog.messages
    )
    with app.get_producer() as producer:
        producer.produce("in", {"n": 0})
        producer.produce("in", {"n": 1})
    assert app.run(drain=True) == [10]
    assert len(list(app.get_consumer().read("test.dead-letters"))) == 3


def test_files_stand_for_what_a_topic_has_forgotten(make_app, tmp_path):
    app = payments(make_app)
    folder = tmp_path / "archive"
    folder.mkdir()
    for number in range(3):
        lines = [
            json.dumps({**value, "user": key, "at": time})
            for key, value, time in PAYMENTS[20 * number : 20 * (number + 1)]
        ]
        (folder / f"day-{number}.jsonl").write_text("\n".join(lines))
    produce(app, PAYMENTS[60:])

    archive = mp.FileSource(folder, key="user", timestamp="at", name="archive")
    assert app.backfill({"payments": archive}) == 60
    app.run(drain=True)

    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS)
        assert state.get("even", store="payments/kind") == {"count": 50}
    assert len(outputs(app)) == 40


def test_values_of_an_older_program_are_lifted_and_the_check_says_so(app, make_app):
    newer = payments(make_app)
    newer.migration("payments/default", from_version=1)(lambda v: {**v, "total": v["total"] * 10})
    assert {v.name: v.says for v in newer.check()} == {
        "payments/default": "migrate",
        "payments/kind/default": "reuse",
    }
    produce(newer, [("user-3", {"amount": 1, "kind": "odd"}, 1_100_000)])
    newer.run(drain=True)

    with admin.open(newer) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS) * 10 + 1
        assert state.get("user-4")["total"] == total_of("user-4", PAYMENTS)
    assert [v.says for v in app.check() if v.name == "payments/default"] == ["refuse"]
    with pytest.raises(StateError, match=r"version 2(.|\n)*Fix:"):
        app.run(drain=True)


def test_state_is_exported_edited_in_a_file_and_imported(app, tmp_path):
    with admin.open(app) as state:
        before = everything(state)
        assert state.export(tmp_path / "state.parquet") == len(before)
        assert state.export(tmp_path / "state.csv", store="payments") == 14
        assert state.export(tmp_path / "state.jsonl") == len(before)
        lines = [json.loads(line) for line in (tmp_path / "state.jsonl").read_text().splitlines()]
        for line in lines:
            if line["name"] == "total":
                line["value"] = 7
        (tmp_path / "edited.jsonl").write_text("\n".join(map(json.dumps, lines)))

        assert state.import_file(tmp_path / "edited.jsonl") == 7
        assert {i.value for i in state.scan(where=lambda i: i.name == "total")} == {7}
        assert state.import_file(tmp_path / "state.csv") == 7
        assert everything(state) == before
        (tmp_path / "bad.jsonl").write_text('{"key": "a"}')
        with pytest.raises(ConfigError, match=r"row 1(.|\n)*Fix:"):
            state.import_file(tmp_path / "bad.jsonl")

        table = state.to_pandas(store="payments").set_index("key")
        assert table.loc["user-3", "total"] == total_of("user-3", PAYMENTS)
        query = "SELECT sum(total) AS t FROM state"
        assert state.sql(query, store="payments").collect()[0].t == sum(range(100))
        assert state.to_spark().where("name = 'count'").count() == 2


# --- the command ----------------------------------------------------------------------------

PROGRAM = """
from datetime import timedelta
import millpond as mp

app = mp.Application(
    consumer_group="payments", state_dir={state!r}, topics_dir={topics!r},
    auto_offset_reset="earliest", max_records_per_batch=10, loglevel=None,
)

def add(value, state):
    state.set("total", state.get("total", 0) + value["amount"])
    return {{"kind": value["kind"], "total": state.get("total")}}

def went_quiet(key, state, timer):
    return None

def count(value, state):
    state.set("count", state.get("count", 0) + 1)
    return value

topic = app.topic("payments", key_deserializer="str", max_future=None)
totals = app.dataframe(topic).apply(add, stateful=True, on_timer=went_quiet)
totals.group_by("kind").apply(count, stateful=True).to_topic(app.topic("payments-out"))
"""


def test_the_command_does_what_the_module_does(app, tmp_path):
    folder = tmp_path / "state"
    file = tmp_path / "shop.py"
    file.write_text(PROGRAM.format(state=str(folder), topics=str(tmp_path / "topics")))

    def call(*words, code=0):
        result = CliRunner().invoke(command, list(map(str, words)))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.output

    def lines(*words):
        return [json.loads(line) for line in call("state", *words, "--json").splitlines()]

    (listed,) = lines("ls", folder)
    assert (listed["group"], listed["last_batch"], listed["keys"]) == ("payments", 9, 9)
    assert "payments/kind/default" in call("state", "ls", file)
    found = {line["name"]: line["value"] for line in lines("get", file, "user-3", "--at", "3")}
    assert found == {"total": total_of("user-3", PAYMENTS[:40]), "seen": {"last": 38}}
    assert "keeps nothing" in call("state", "get", file, "nobody", code=1)
    where = "name == 'total' and value > 700"
    large = [u for u in USERS if total_of(u, PAYMENTS) > 700]
    assert {line["key"] for line in lines("scan", folder, "--where", where)} == set(large)
    changes = [line for line in lines("history", file, "user-3") if line["name"] == "total"]
    assert changes[-1]["records"][-1]["value"]["amount"] == 94
    assert len(lines("diff", file, "8", "--store", "payments/kind")) == 2
    assert len(lines("top", folder, "--limit", "3")) == 3
    assert len(lines("timers", folder)) == 7
    assert "whole, as of batch 9" in call("state", "verify", folder)
    assert "nothing is damaged" in call("state", "repair", folder)
    assert "16 values" in call("state", "export", folder, tmp_path / "all.jsonl")
    assert "reuse" in call("check", file)

    assert "2 value(s) changed" in call(
        *("state", "set", file, "user-3", "total=5", 'note={"$tuple": [1]}', "--store", "payments")
    )
    assert "2 value(s) deleted" in call("state", "delete", file, "user-4")
    assert {line["what"] for line in lines("audit", folder)} == {"set", "delete"}
    assert "2 -> 3 parts" in call("state", "rescale", folder, 3)
    with pytest.raises(ConfigError, match="neither a batch nor a time"):
        call("state", "rewind", file, "--to", "yesterday", "--yes")
    assert "manual change(s)" in call("state", "rewind", file, "--to", 7, "--yes")
    assert lines("ls", folder)[0]["last_batch"] == 7
    file.write_text(file.read_text().replace('"payments", key', '"orders", key'))
    assert "refuse" in call("check", file, code=1)
