"""What is lost of state is said, what is copied is a copy, and nothing is delivered twice."""

from __future__ import annotations

import json
import shlex

import pytest
from ledger import PAYMENTS, outputs, produce, total_of
from typer.testing import CliRunner

import millpond as mp
from millpond import admin
from millpond.cli.main import command
from millpond.errors import DamagedStateError, MillpondError, StateError
from millpond.storage import files

pytestmark = pytest.mark.spark


def totals(make_app, group="payments", scope="payments", **options):
    """Totals by user; a change of key gives the scope a name of its own."""
    app = make_app(group, max_records_per_batch=10, **options)
    topic = app.topic("payments", key_deserializer="str", max_future=None)
    frame = app.dataframe(topic)
    if scope != "payments":
        frame = frame.group_by(lambda value: str(value["amount"] % 7), name=scope)
    frame.update(add, stateful=True)
    return app


def add(value, state):
    state.set("total", state.get("total", 0) + value["amount"])


def generation(tmp_path, group="payments"):
    return max((tmp_path / "state" / group / "generations").iterdir())


def lose(tmp_path, folder, batch):
    """Remove a file of Spark's log, with its checksum."""
    home = generation(tmp_path) / folder
    (home / str(batch)).unlink()
    (home / f".{batch}.crc").unlink(missing_ok=True)


def run(*words):
    return CliRunner().invoke(command, list(map(str, words)))


# --- a batch that was made manually and is lost ------------------------------------------------


@pytest.mark.parametrize("recover", ["stop", "auto"])
@pytest.mark.parametrize("what", ["commit", "offsets", "clock"])
def test_an_edit_that_is_lost_is_never_lost_without_a_word(make_app, tmp_path, what, recover):
    app = totals(make_app, recover=recover)
    produce(app, PAYMENTS[:20])
    app.run(drain=True)
    with admin.open(app) as state:
        state.set("user-3", {"total": 1000})
        last = state.info().last_batch
    if what == "commit":
        lose(tmp_path, "commits", last)
    elif what == "offsets":
        (generation(tmp_path) / "offsets" / str(last)).write_text("torn")
    else:
        max((tmp_path / "state" / "payments").glob("clock-*.json")).unlink()

    with pytest.raises(DamagedStateError, match=r"Fix: millpond state repair"):
        app.run(drain=True)
    with admin.open(app) as state:
        if what != "clock":
            assert not state.verify().is_whole
        assert state.repair().lost_edits == 1
    app.run(drain=True)

    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS[:20])


def test_a_rescale_that_is_lost_is_taken_back(make_app, tmp_path):
    app = totals(make_app)
    produce(app, PAYMENTS[:20])
    app.run(drain=True)
    with admin.open(app) as state:
        state.rescale(3)
        lose(tmp_path, "commits", state.info().last_batch)
    with pytest.raises(DamagedStateError, match=r"it is gone(.|\n)*Fix: millpond state repair"):
        app.run(drain=True)

    with admin.open(app) as state:
        assert state.repair().lost_edits == 0
        assert state.info().partitions == 2
    produce(app, PAYMENTS[20:40])
    app.run(drain=True)

    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS[:40])


def test_after_a_backfill_of_files_nothing_is_read_twice(make_app, tmp_path):
    lines = [json.dumps({**v, "user": key, "at": at}) for key, v, at in PAYMENTS[:20]]
    (tmp_path / "day.jsonl").write_text("\n".join(lines))
    archive = mp.FileSource(tmp_path / "day.jsonl", key="user", timestamp="at", name="archive")
    app = totals(make_app)
    produce(app, PAYMENTS[:20])
    app.backfill({"payments": archive}, live_from="latest")
    with admin.open(app) as state:
        lose(tmp_path, "commits", state.info().last_batch)

    with pytest.raises(DamagedStateError, match=r"it is gone"):
        app.run(drain=True)
    with admin.open(app) as state, pytest.raises(StateError, match=r"backfill(.|\n)*restore"):
        state.repair()


# --- nothing is delivered twice ---------------------------------------------------------------


def quiet_alarms(make_app, scope):
    app = make_app("alarms", max_records_per_batch=10)
    topic = app.topic("payments", key_deserializer="str", max_future=None)

    def watch(value, state):
        state.set_timer("quiet", after=5_000)

    def rang(key, state, timer):
        return [key, timer.at]

    frame = app.dataframe(topic).watermark(0).group_by(lambda v: v["amount"] % 7, name=scope)
    frame = frame.apply(watch, stateful=True, on_timer=rang).filter(bool)
    frame.to_topic(app.topic("alarms-out"))
    return app


@pytest.mark.parametrize("order", ["rewind first", "rename first"])
def test_timers_ring_once_whatever_their_scope_is_called(make_app, order):
    app = quiet_alarms(make_app, "one")
    produce(app, [("k", {"amount": n % 30}, 1_000_000 + 2_000 * n) for n in range(60)])
    app.run(drain=True)
    before = outputs(app, "alarms")
    assert before
    renamed = quiet_alarms(make_app, "two")
    with admin.open(app) as state:
        scope = state.info().stores[0].rpartition("/")[0]
        if order == "rewind first":
            state.rewind(2)
        state.rename(scope, scope.replace("one", "two"))
    if order == "rename first":
        with admin.open(renamed) as state:
            state.rewind(2)
        app.run(drain=True)
    else:
        renamed.run(drain=True)

    assert outputs(app, "alarms") == before


def test_outputs_that_were_kept_are_given_again_where_that_is_asked_for(app):
    with admin.open(app) as state:
        kept = state.rewind(3)
        again = state.rewind(3, outputs="again")
    assert (kept.batches, again.batches) == (6, 6)
    assert again.records == 60
    app.run(drain=True)

    assert len(outputs(app)) == 160


# --- copies -----------------------------------------------------------------------------------


def test_a_backup_shares_nothing_with_what_it_is_a_copy_of(app, tmp_path):
    with admin.open(app) as state:
        state.backup(tmp_path / "backup")
    for file in generation(tmp_path).rglob("*.changelog"):
        file.write_bytes(b"flipped" + file.read_bytes()[7:])

    with admin.open(tmp_path / "backup") as copy:
        assert copy.verify().is_whole
    with admin.open(app) as state:
        assert not state.verify().is_whole
        state.restore(tmp_path / "backup")
        assert state.get("user-3", store="payments")["total"] == total_of("user-3", PAYMENTS)


def test_what_is_damaged_is_not_copied(app, tmp_path):
    with admin.open(app) as state:
        state.backup(tmp_path / "backup")
    for place in (tmp_path / "state", tmp_path / "backup"):
        changelog = sorted((place / "payments").rglob("*.changelog"))[0]
        changelog.write_bytes(changelog.read_bytes()[:-5])
    with admin.open(app) as state:
        for copy in (
            lambda: state.backup(tmp_path / "other"),
            lambda: state.fork("other"),
            lambda: state.restore(tmp_path / "backup"),
        ):
            with pytest.raises(DamagedStateError, match=r"changelog(.|\n)*Fix:"):
                copy()
        assert state.info().group == "payments"
    assert not (tmp_path / "state" / "other" / "manifest.json").exists()


def test_a_copy_that_fails_leaves_nothing_behind(app, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.LocalFiles, "copy", full)
    with admin.open(app) as state, pytest.raises(OSError, match="No space"):
        state.fork("other")
    monkeypatch.undo()

    assert not list((tmp_path / "state" / "other").rglob("*.changelog"))
    listed = run("state", "ls", tmp_path / "state", "--json")
    assert [json.loads(line)["group"] for line in listed.output.splitlines()] == ["payments"]


def test_a_group_that_is_damaged_is_listed_beside_the_others(app, tmp_path):
    with admin.open(app) as state:
        state.fork("other")
    (tmp_path / "state" / "other" / "manifest.json").write_text("torn")

    listed = run("state", "ls", tmp_path / "state")

    assert listed.exit_code == 0
    assert "damaged" in listed.output and "10 to" not in listed.output
    assert "last batch" in listed.output


def test_a_backfill_after_a_clear_reads_all_there_is(make_app):
    app = totals(make_app)
    produce(app, PAYMENTS[:30])
    app.run(drain=True)
    app.clear_state()

    assert app.backfill() == 30
    with admin.open(app) as state:
        assert state.get("user-3")["total"] == total_of("user-3", PAYMENTS[:30])


# --- people and their commands ----------------------------------------------------------------


def test_the_command_that_a_refused_rename_names_works_as_it_is_printed(make_app, tmp_path):
    produce(app := totals(make_app, scope="one"), PAYMENTS[:20])
    app.run(drain=True)
    (tmp_path / "APP.py").write_text(
        "import millpond as mp\n"
        f"app = mp.Application(consumer_group='payments', state_dir={str(tmp_path / 'state')!r},"
        f" topics_dir={str(tmp_path / 'topics')!r})\n"
        "topic = app.topic('payments', key_deserializer='str')\n"
        "app.dataframe(topic).group_by(lambda v: str(v['amount'] % 7), name='two')"
        ".update(lambda v, s: None, stateful=True)\n"
    )
    renamed = totals(make_app, scope="two")
    with pytest.raises(StateError) as refused:
        renamed.run(drain=True)
    words = shlex.split(str(refused.value).partition("state: millpond ")[2].partition(";")[0])
    words[words.index("APP.py")] = str(tmp_path / "APP.py")

    done = run(*words, "--yes")

    assert done.exit_code == 0, done.output
    renamed.run(drain=True)
    with admin.open(renamed) as state:
        assert state.get("3")["total"] == sum(n for n in range(20) if n % 7 == 3)


def test_keys_of_several_kinds_live_side_by_side(make_app):
    app = make_app("kinds")
    texts = app.topic("texts", key_serializer="str", key_deserializer="str")
    numbers = app.topic("numbers", key_serializer="int", key_deserializer="int")
    for topic in (texts, numbers):
        app.dataframe(topic).update(add, stateful=True)
    with app.get_producer() as producer:
        producer.produce("texts", key="u1", value={"amount": 1})
        producer.produce("numbers", key=7, value={"amount": 2})
    app.run(drain=True)

    with admin.open(app) as state:
        assert state.get("u1") == {"total": 1}
        assert state.get(7) == {"total": 2}
        assert [change.after for change in state.history(7)] == [2]
        assert state.delete("u1") == 1
        assert state.get("u1") == {}
        assert state.history("u1")[-1].is_by_hand


def test_a_sink_that_fails_is_what_is_named(make_app):
    class Full(mp.Sink):
        def write(self, batch):
            raise OSError(28, "No space left on device", "/data/out.csv")

    app = make_app("sinks")
    app.dataframe(app.topic("payments", key_deserializer="str")).sink(Full())
    produce(app, PAYMENTS[:5])

    with pytest.raises(OSError, match="No space") as failed:
        app.run(drain=True)
    assert "In the sink Full (" in str(failed.value.__notes__)
    assert "test_admin_safety.py" in str(failed.value.__notes__)


def test_what_people_do_to_state_is_reported_in_full(make_app, tmp_path):
    app = totals(make_app)
    produce(app, PAYMENTS[:20])
    app.run(drain=True)
    place = tmp_path / "state"
    bad = tmp_path / "bad.jsonl"
    bad.write_text("oops\n")

    corrected = run("state", "set", place, "zoe", "total=40")
    assert corrected.output == "1 value(s) changed. 'zoe' is a new key.\n"
    more = run("state", "set", place, "zoe", "total=41", "totl=42")
    assert "2 value(s) changed. New in 'zoe': totl." in more.output, more.output
    assert run("state", "delete", place, "zoe", "--name", "total").exit_code == 0
    typo = run("state", "delete", place, "user-3", "--name", "totl")
    nobody = run("state", "delete", place, "mallory")
    broken = run("state", "import", place, bad)
    audit = run("state", "audit", place)
    entries = run("state", "audit", place, "--json").output.splitlines()

    assert typo.exit_code == nobody.exit_code == 1
    assert "it keeps total" in typo.output
    assert isinstance(broken.exception, MillpondError)
    assert "row 1" in str(broken.exception) and "Nothing was changed" in str(broken.exception)
    assert [json.loads(line)["what"] for line in entries] == ["set", "set", "delete"]
    assert json.loads(entries[0])["values"] == {"'total'": "40"}
    assert audit.output.count("zoe") == 3


def test_an_export_of_several_stores_comes_back_store_by_store(make_app, tmp_path):
    app = make_app("stores", max_records_per_batch=10)
    frame = app.dataframe(app.topic("payments", key_deserializer="str", max_future=None))
    frame.update(add, stateful=True)
    frame.agg(n=mp.Count())
    produce(app, PAYMENTS[:20])
    app.run(drain=True)
    place = tmp_path / "state"
    with admin.open(app) as state:
        own, other = sorted(state.info().stores, key=lambda name: "default" not in name)
        state.export(tmp_path / "all.csv")
        state.set("user-3", {"total": 0})  # the only store that can be set
    refused = run("state", "import", place, tmp_path / "all.csv")
    done = run("state", "import", place, tmp_path / "all.csv", "--store", own)

    assert "--store" in str(refused.exception) and other in str(refused.exception)
    assert done.exit_code == 0, done
    with admin.open(app) as state:
        assert state.get("user-3", store=own)["total"] == total_of("user-3", PAYMENTS[:20])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["scan", "--limit", "-1"], "Invalid value"),
        (["top", "--limit", "-1"], "Invalid value"),
        (["top", "--by", "size"], "--by bytes"),
        (["get", "user-3", "--at", "99:99"], "neither a batch nor a time"),
        (["restore", "nowhere"], "no backup"),
        (["rewind", "--to", "99"], "as in batch"),
    ],
)
def test_a_mistake_on_the_command_line_is_explained(app, tmp_path, words, says):
    found = run("state", words[0], tmp_path / "state", *words[1:])

    assert found.exit_code != 0
    assert says in found.output + str(found.exception)
    assert isinstance(found.exception, MillpondError | SystemExit)


def test_state_is_deleted_when_that_is_asked(app, tmp_path):
    assert run("state", "clear", tmp_path / "state", "--yes").exit_code == 0
    with admin.open(app) as state:
        assert state.is_empty()
        assert state.repair().problems == []
