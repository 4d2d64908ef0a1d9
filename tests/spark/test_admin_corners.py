"""State that is changed manually, and what else may happen to it at the same time."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from contextlib import suppress

import pyarrow as pa
import pytest
from ledger import PAYMENTS, USERS, outputs, payments, produce, total_of
from typer.testing import CliRunner

import millpond as mp
from millpond import admin
from millpond.cli.main import command
from millpond.errors import (
    ConfigError,
    DamagedStateError,
    GroupInUseError,
    StateError,
    StepError,
    UnsupportedCheckpointError,
)

pytestmark = pytest.mark.spark


# --- the records that caused a change ------------------------------------------------------


def test_causes_of_a_change_are_known_where_records_of_the_future_are_set_aside(make_app):
    app = make_app("shop")
    topic = app.topic("clicks", timestamp_extractor=lambda value, *_: value["at"], lateness=1_000)
    by_user = app.dataframe(topic).group_by("user")
    by_user.session_window(60_000).agg(n=mp.Count()).final()
    now = time.time_ns() // 1_000_000
    clicks = [(None, {"user": user, "at": now}, 0) for user in ("ann", "bob", "ann")]
    produce(app, [*clicks, (None, {"user": "ann", "at": now + 10**12}, 0)], "clicks")
    app.run(drain=True)

    with admin.open(app) as state:
        changes = state.history("ann")
    assert changes
    for change in changes:
        assert [record.offset for record in change.records] == [0, 2]


# --- what is said of state belongs to a batch -----------------------------------------------


def totals(make_app, source="payments", lift=None, group="payments", **options):
    """Totals by user, from a topic of any name."""
    app = make_app(group, max_records_per_batch=10, **options)
    topic = app.topic(source, key_deserializer="str", max_future=None)
    app.dataframe(topic).update(add_one, stateful=True)
    if lift is not None:
        app.migration(f"{source}/default", from_version=1)(lift)
    return app


def add_one(value, state):
    state.set("total", state.get("total", 0) + value["amount"])


def ten_times(values):
    return {name: value * 10 for name, value in values.items()}


def test_a_rename_is_taken_back_with_the_batch_it_was(make_app):
    app = totals(make_app)
    produce(app, PAYMENTS[:50])
    app.run(drain=True)
    with admin.open(app) as state:
        state.rename("payments", "orders")
    with admin.open(totals(make_app, "orders")) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS[:50])
        assert state.get("user-3", at=4)["total"] == total_of("user-3", PAYMENTS[:50])
        state.rewind(3)
        assert state.info().stores == ["payments/default"]

    with pytest.raises(StateError, match=r"renamed(.|\n)*Fix:"):
        totals(make_app, "orders").run(drain=True)
    app.run(drain=True)

    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS[:50])


def test_a_program_that_never_committed_a_batch_says_nothing_of_the_state(make_app):
    app, newer = totals(make_app), totals(make_app, lift=ten_times)
    produce(app, PAYMENTS[:20])
    app.run(drain=True)

    newer.run(drain=True)  # there is nothing to read
    assert [verdict.says for verdict in app.check()] == ["reuse"]
    produce(app, PAYMENTS[20:30])
    newer.run(drain=True)
    assert [verdict.says for verdict in app.check()] == ["refuse"]
    with admin.open(app) as state:
        state.rewind(1)
    app.run(drain=True)

    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS[:30])


def test_values_that_are_set_and_renamed_are_of_the_version_of_their_store(make_app, tmp_path):
    app = totals(make_app, lift=ten_times)
    produce(app, [("a", {"amount": 5}, 1_000_000)])
    app.run(drain=True)
    with admin.open(app) as state:
        state.set("b", {"total": 7})
        state.export(tmp_path / "state.jsonl")
        state.delete("a")
        state.import_file(tmp_path / "state.jsonl")
        state.rename("payments/default", "payments/sums")
        state.rename("payments/sums", "payments/default")
    produce(app, [("a", {"amount": 1}, 1_000_001), ("b", {"amount": 1}, 1_000_002)])
    app.run(drain=True)

    with admin.open(app) as state:
        assert (state.get("a"), state.get("b")) == ({"total": 6}, {"total": 8})


def test_a_program_without_state_does_not_take_it_from_another(make_app):
    app = totals(make_app)
    produce(app, PAYMENTS[:10])
    app.run(drain=True)
    stateless = make_app("payments")
    stateless.dataframe(stateless.topic("payments", key_deserializer="str")).apply(len)

    assert [verdict.says for verdict in stateless.check()] == ["refuse"]
    with pytest.raises(StateError, match=r"no place for it(.|\n)*Fix:"):
        stateless.run(drain=True)
    app.run(drain=True)


# --- while it runs --------------------------------------------------------------------------


def test_a_running_application_is_read_forked_and_backed_up(make_app, tmp_path):
    app = totals(make_app)
    produce(app, PAYMENTS[:10])
    running = threading.Thread(target=app.run, kwargs={"timeout": 60})
    running.start()
    possible = [total_of("user-3", PAYMENTS[:count]) for count in range(len(PAYMENTS) + 1)]
    seen, last = [], -1
    try:
        with admin.open(app) as state:
            for round in range(5):
                last = _wait_for_batch(state, last)
                assert state.info().running
                seen.append(state.get("user-3")["total"])
                if round == 2:
                    state.fork("copy")
                if round == 3:
                    state.backup(tmp_path / "backup")
                with pytest.raises(GroupInUseError):
                    state.set("user-3", {"total": 0})
                produce(app, PAYMENTS[10 * (round + 1) : 10 * (round + 2)])
            _wait_for_batch(state, last)
    finally:
        app.stop()
        running.join(60)

    assert set(seen) <= set(possible) and seen == sorted(seen)
    copies = totals(make_app, group="copy"), totals(make_app, state_dir=tmp_path / "backup")
    for program in (app, *copies):
        program.run(drain=True)
        with admin.open(program) as state:
            assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS[:60])
            assert state.verify().problems == []


def _wait_for_batch(state, last):
    """Wait until there is a batch after one, and return the latest."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(StateError):  # before the first batch there is no state
            found = state.info().last_batch
            if found is not None and found > last:
                return found
        time.sleep(0.05)
    raise AssertionError("no batch came")


def test_many_keys_with_timers_and_expiry_are_divided_again(make_app):
    """2 -> 5 -> 1 parts; in each of them timers fire, values expire, and nothing is lost."""
    count = int(os.environ.get("MILLPOND_KEYS", "5000"))

    def watch(value, state):
        state.set("n", state.get("n", 0) + 1)
        state.set("soon", True, ttl=10_000)
        state.set_timer("quiet", at=value)

    def went_quiet(key, state, timer):
        return {"key": key, "at": timer.at, "n": state.get("n")}

    app = make_app("many")
    numbers = {"key_serializer": "int", "key_deserializer": "int"}
    topic = app.topic("many", max_future=None, **numbers)
    frame = app.dataframe(topic).watermark(0)
    frame.apply(watch, stateful=True, on_timer=went_quiet).filter(bool).to_topic(app.topic("rang"))

    def produce_at(moment, keys):
        with app.get_producer() as producer:
            for key in keys:
                # A third of the timers is due in each of the three runs.
                due = 20_000 * (1 + key % 3)
                producer.produce("many", key=key, value=due, timestamp=moment)

    def rang():
        with app.get_consumer() as consumer:
            return [(r.value["key"], r.value["at"], r.value["n"]) for r in consumer.read("rang")]

    produce_at(1_000, range(count))
    app.run(drain=True)
    for run, parts in enumerate((5, 1)):
        with admin.open(app) as state:
            waiting = sum(1 for _ in state.timers())
            assert waiting == count + run - len(rang())
            assert state.rescale(parts).partitions == parts
            assert state.info().partitions == parts
        produce_at(20_001 + 20_000 * run, [-1])  # the time goes on, and nothing else
        app.run(drain=True)

    with admin.open(app) as state:
        soon = [item.key for item in state.scan(store="many") if item.name == "soon"]
    assert soon == [-1]
    due = [(key, 20_000 * (1 + key % 3), 1) for key in range(count) if key % 3 < 2]
    assert sorted(rang()) == sorted(due)


# --- what is cut short ----------------------------------------------------------------------


def archived(tmp_path, count):
    folder = tmp_path / "archive"
    folder.mkdir(exist_ok=True)
    for number in range(count):
        lines = [
            json.dumps({**value, "user": key, "at": time})
            for key, value, time in PAYMENTS[20 * number : 20 * (number + 1)]
        ]
        (folder / f"day-{number}.jsonl").write_text("\n".join(lines))
    return mp.FileSource(folder, key="user", timestamp="at", name="archive")


def test_a_backfill_that_was_cut_short_goes_on(make_app, tmp_path):
    def add_unless_waiting(value, state):
        if value["amount"] == 45 and (tmp_path / "fails").exists():
            raise RuntimeError("no")
        add_one(value, state)

    app = make_app("payments", max_records_per_batch=10)
    topic = app.topic("payments", key_deserializer="str", max_future=None)
    app.dataframe(topic).update(add_unless_waiting, stateful=True)
    produce(app, PAYMENTS[60:])
    archive = archived(tmp_path, 3)
    (tmp_path / "fails").touch()
    with pytest.raises(StepError):
        app.backfill({"payments": archive})
    with pytest.raises(StateError, match=r"has not ended(.|\n)*Fix:"):
        app.run(drain=True)
    (tmp_path / "fails").unlink()

    app.backfill({"payments": archive})
    app.run(drain=True)

    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS)
        assert state.history("user-3")[-1].after == total_of("user-3", PAYMENTS)
        with pytest.raises(StateError, match=r"of a backfill(.|\n)*Fix:"):
            state.rewind(0)


def test_every_way_out_of_a_lost_manifest_works(app, tmp_path):
    folder = tmp_path / "state" / "payments"
    with admin.open(app) as state:
        state.backup(tmp_path / "backup")
    for file in [*folder.glob("manifest*.json"), *folder.glob("journal*.json")]:
        file.unlink()
    with pytest.raises(StateError, match=r"repair"):
        app.run(drain=True)
    with admin.open(app) as state:
        with pytest.raises(StateError, match=r"restore"):
            state.repair()
        state.restore(tmp_path / "backup")
        assert state.get("user-3", store="payments")["total"] == total_of("user-3", PAYMENTS)
    for file in [*folder.glob("manifest*.json"), *folder.glob("journal*.json")]:
        file.unlink()
    with pytest.raises(StateError, match=r"clear_state\(True\)"):
        app.clear_state()
    app.clear_state(reset_offsets=True)
    app.run(drain=True)
    with admin.open(app) as state:
        assert state.get("user-3", store="payments")["total"] == total_of("user-3", PAYMENTS)


def test_a_backup_that_is_run_writes_what_is_its_own(app, make_app, tmp_path):
    with admin.open(app) as state:
        state.backup(tmp_path / "backup")
    more = [("user-3", {"amount": n, "kind": "odd"}, 1_200_000 + n) for n in range(3)]
    produce(app, more)
    app.run(drain=True)
    assert len(outputs(app)) == 103

    copy = payments(make_app, state_dir=tmp_path / "backup")
    copy.run(drain=True)

    assert len(outputs(app)) == 106
    with admin.open(copy) as state:
        assert state.get("user-3", store="payments")["total"] == total_of("user-3", PAYMENTS + more)


def test_a_repair_says_that_a_change_by_hand_is_lost(make_app, tmp_path):
    app = totals(make_app, recover="auto")
    produce(app, PAYMENTS[:20])
    app.run(drain=True)
    with admin.open(app) as state:
        state.set("user-3", {"total": 7})
        last = state.info().last_batch
    generation = max((tmp_path / "state" / "payments" / "generations").iterdir())
    (generation / "commits" / str(last)).write_text("torn")

    with pytest.raises(
        DamagedStateError, match=r"1 manual change\(s\) (.|\n)*Fix: millpond state repair"
    ):
        app.run(drain=True)
    with admin.open(app) as state:
        assert state.repair().lost_edits == 1
    app.run(drain=True)

    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS[:20])


def test_state_that_another_version_of_spark_wrote_is_not_reported_as_damaged(app, tmp_path):
    home = tmp_path / "state/payments/generations/0001"
    for file in (home / "state/0/_metadata/v2/0", home / "commits/9"):
        file.write_bytes(b"v9" + file.read_bytes()[2:])
        file.with_name(f".{file.name}.crc").unlink()

        with admin.open(app) as state, pytest.raises(UnsupportedCheckpointError) as found:
            state.get(USERS[1])

        assert re.search(
            r"wrote the state: \w.*encountered v9.*\nFix: read it with", str(found.value)
        )


def test_a_generation_that_is_gone_is_no_new_group(app, tmp_path):
    shutil.rmtree(tmp_path / "state" / "payments" / "generations")

    with pytest.raises(StateError, match=r"its batches are gone(.|\n)*repair"):
        app.run(drain=True)
    with admin.open(app) as state:
        state.repair()
    written = outputs(app)
    app.run(drain=True)

    assert outputs(app) == written
    with admin.open(app) as state:
        assert state.get("user-3", store="payments")["total"] == total_of("user-3", PAYMENTS)


def test_the_command_finds_the_key_that_is_there(make_app, tmp_path):
    app = make_app("numbers")
    frame = app.dataframe(app.topic("payments", key_deserializer="str")).group_by("amount")
    frame.update(add_one, stateful=True)
    produce(app, PAYMENTS[:5])
    app.run(drain=True)
    place = [str(tmp_path / "state"), "--group", "numbers"]

    for words in (["set", *place[:1], "4", "total=9"], ["delete", *place[:1], "3"]):
        result = CliRunner().invoke(command, ["state", *words, *place[1:], "--json"])
        assert next(iter(json.loads(result.output).values())) == 1, result

    with admin.open(app) as state:
        assert state.get(4) == {"total": 9}
        assert state.get(3) == {}


def test_a_scan_knows_both_names_of_a_store_and_says_where_it_ends(make_app, tmp_path):
    app = make_app("numbers")
    app.dataframe(app.topic("payments", key_deserializer="str")).update(add_one, stateful=True)
    produce(app, PAYMENTS[:20])
    app.run(drain=True)

    def scanned(*words):
        place = ["state", "scan", str(tmp_path / "state"), "--group", "numbers", "--json"]
        result = CliRunner().invoke(command, [*place, *words])
        return len(result.stdout.splitlines()), result.stderr

    every, hint = scanned("--limit", "0")
    assert every > 2 and hint == ""
    assert scanned("--limit", "2") == (2, "There are more than 2; --limit 0 shows all.\n")
    assert scanned("--limit", str(every)) == (every, "")
    for same in ("store == 'payments/default'", "store == 'default'", "store.startswith('def')"):
        assert scanned("--where", same)[0] == every, same
    for other in ("store != 'default'", "store != 'payments/default'", "store in {'other'}"):
        assert scanned("--where", other)[0] == 0, other


def test_a_table_of_update_state_is_a_table(make_app, tmp_path):
    def latest(batch, state):
        new = batch.select(["_key", "amount"]).group_by("_key").aggregate([("amount", "max")])
        return new if not state.num_rows else pa.concat_tables([state, new])

    app = make_app("tables")
    app.dataframe(app.topic("payments", key_deserializer="str")).update_state(latest, "seen")
    produce(app, PAYMENTS[:20])
    app.run(drain=True)

    with admin.open(app) as state:
        assert state.info().stores == ["payments/seen"]
        rows = state.to_arrow("payments/seen").to_pylist()
        assert sorted(row["_key"] for row in rows) == USERS
        assert max(row["amount_max"] for row in rows) == 19
        assert state.sql("select max(amount_max) from state").collect()[0][0] == 19
        assert state.export(tmp_path / "seen.parquet") == 7
        with pytest.raises(ConfigError, match=r"table(.|\n)*Fix: to_arrow"):
            state.get("user-3")
        with pytest.raises(ConfigError, match=r"Fix: to_arrow"):
            list(state.scan(store="payments/seen"))
