"""Programs that change though they have state: what is refused, what helps, and what is kept."""

from __future__ import annotations

import json
import re

import pytest
from changing import COUNT, outputs, ways_out
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import millpond as mp
from millpond import admin
from millpond.cli.main import command
from millpond.config import PARTITIONS
from millpond.errors import DamagedStateError, StateError

pytestmark = pytest.mark.spark

# --- a window of another length -----------------------------------------------------------------


def session(minutes):
    return f"clicks.session_window({minutes * 60_000}).agg(n=mp.Count()).final()\n"


def test_a_window_of_another_length_starts_empty_once_that_was_accepted(programs):
    old, new = "clicks/session_window_1800000", "clicks/session_window_1200000"
    programs.write(COUNT + session(30))
    programs.send(3)
    programs.run()

    programs.write(COUNT + session(20))
    assert f"state under {old}" in programs.refusal()
    shown = programs.does("check APP.py")
    assert shown.exit_code == 1
    assert all(f" {store}\n" in shown.stdout for store in (old, new)), shown.stdout
    moved = programs.does(f"state rename APP.py {old} {new}")
    assert re.search(
        r"session_window_1800000, (.|\n)*millpond check --accept", str(moved.exception)
    )
    path = str(programs.folder / "APP.py")
    asked = ["state", "rename", path, "clicks/default", "clicks/other"]
    assert "Go on?" in CliRunner().invoke(command, asked, input="n\n").output
    assert programs.does("check APP.py --accept").exit_code == 0
    assert programs.verdicts() == {"clicks/default": "reuse", new: "new", old: "orphaned"}
    programs.write(COUNT + session(10))  # that is another change
    assert "Was something renamed" in programs.refusal()
    programs.write(COUNT + session(20))
    programs.send(2)
    programs.run()

    kept = programs.kept()
    assert kept["clicks/default"] == {"n": 5}
    assert [window["n"] for window in kept[old].values()] == [3]
    assert [window["n"] for window in kept[new].values()] == [2]
    programs.run()
    programs.write(COUNT + session(10))
    assert f"state under {new}," in programs.refusal()


# --- an aggregation that is gone ----------------------------------------------------------------


def test_a_removed_aggregation_is_refused_until_it_is_put_back_or_accepted(programs):
    both = 'clicks.agg(n=mp.Count(), most=mp.Max("n"))'
    programs.write(both)
    programs.send(2)
    programs.run()

    programs.write("clicks.agg(n=mp.Count())")
    message = programs.refusal()
    assert "  most was Max(n) and is no longer there\nFix: put it back, or" in message
    assert 'millpond check --accept APP.py, or Application(on_state_change="accept")' in message
    assert programs.verdicts() == {"clicks/agg": "refuse"}
    programs.write(both)
    assert programs.verdicts() == {"clicks/agg": "reuse"}
    programs.write("clicks.agg(n=mp.Count())")
    assert programs.does("check --accept APP.py").exit_code == 0
    programs.send(1)
    programs.run()
    assert programs.values("clicks/agg") == {"n": 3}

    programs.write('clicks.agg(most=mp.Max("n"))', on_state_change="accept")
    programs.send(1)
    programs.run()
    assert programs.values("clicks/agg") == {"most": 3}


def test_an_orphan_of_long_ago_blocks_no_unrelated_step_and_can_be_dropped(programs):
    programs.write(COUNT + 'clicks.stateful_map("users", fold)')
    programs.send(2)
    programs.run()
    programs.write(COUNT)
    programs.send(1)
    programs.run()

    programs.write(COUNT + 'clicks.stateful_map("shops", fold)')
    assert programs.verdicts() == {
        "clicks/default": "reuse",
        "clicks/shops": "new",
        "clicks/users": "orphaned",
    }
    programs.send(2)
    programs.run()
    assert programs.values("clicks/users") == {"": 2}

    only_asked = programs.does("state drop APP.py users --dry-run")
    assert "clicks/users: 1 value(s) of 1 key(s) are dropped" in only_asked.output
    assert programs.values("clicks/users") == {"": 2}
    assert programs.does("state drop APP.py users").exit_code == 0

    assert programs.kept() == {"clicks/shops": {"": 2}, "clicks/default": {"n": 5}}
    assert programs.verdicts() == {"clicks/default": "reuse", "clicks/shops": "reuse"}
    with programs.opened() as state:
        assert [(e["what"], e["stores"]) for e in state.audit()] == [("drop", ["clicks/users"])]
        state.rewind(state.info().last_batch - 1)
    assert programs.values("clicks/users") == {"": 2}


def test_a_whole_key_scope_is_dropped_with_its_timers_and_its_steps_start_empty(programs):
    timed = """
def remind(value, state):
    state.set_timer("later", after=3_600_000)
    return count(value, state)

users = clicks.group_by("user")
users.apply(remind, stateful=True, on_timer=lambda key, state, timer: None)
users.stateful_map("sum", fold)
"""
    programs.write(COUNT + timed)
    programs.send(3)
    programs.run()
    with programs.opened() as state:
        assert len(list(state.timers())) == 1

    done = programs.does("state drop APP.py clicks/user")

    assert "the program uses clicks/user/default, clicks/user/sum" in done.output
    with programs.opened() as state:
        assert list(state.timers()) == []
        assert {(item.scope, item.value) for item in state.scan()} == {("clicks", 3)}
    programs.send(2)
    programs.run()
    assert programs.kept() == {
        "clicks/default": {"n": 5},
        "clicks/user/default": {"n": 2},
        "clicks/user/sum": {"": 2},
    }


def test_a_name_that_cannot_be_dropped_or_taken_is_refused_with_one_that_can(app, tmp_path):
    def named(error, pattern):
        return re.search(rf"Fix: .*{pattern}", str(error.value))[1].rstrip(".")

    state = admin.open(tmp_path / "state", "payments")
    with pytest.raises(StateError, match="there is no store 'total'") as unknown:
        state.drop("total")
    assert named(unknown, r"as in (\S+)$") == "payments/default"
    with pytest.raises(StateError, match="'default' names 2 stores") as several:
        state.drop("default")
    assert state.drop(named(several, r"as in (\S+)$"), dry_run=True).keys == 7
    with pytest.raises(StateError, match="has other state|differ in the key scope") as other:
        state.rename("payments/default", "orders/total")
    assert named(other, r"APP\.py (\S+ \S+)$") == "payments orders"
    with pytest.raises(StateError, match="state under payments/kind already") as taken:
        state.rename("payments", "payments/kind")

    state.drop(named(taken, r"drop APP\.py (\S+)$"))
    state.rename("payments", "payments/kind")

    assert {item.scope for item in state.scan()} == {"payments/kind"}


# --- every way out that a message names ---------------------------------------------------------

BY_WATERMARK = "clicks.tumbling_window(60_000).count().final()\n"
BY_KEY = "clicks.tumbling_window(60_000).count().final(closing_strategy='key')\n"
SUM, TOTAL = (f"clicks.stateful_map({name!r}, fold)\n" for name in ("sum", "total"))
USER = "clicks.group_by('user').stateful_map('sum', fold)\n"
SHOP = "clicks.group_by('user', name='shop').stateful_map('total', fold)\n"

# Before, after, and what each way out must lead to: the store that is new and its values.
REFUSED = {
    "a step was renamed": (COUNT + SUM, COUNT + TOTAL, "clicks/total", {"": 2}, {"": 5}),
    "a scope and a step were renamed": (
        COUNT + USER,
        COUNT + SHOP,
        "clicks/shop/total",
        {"": 2},
        {"": 5},
    ),
    "a window closes otherwise": (
        COUNT + BY_WATERMARK,
        COUNT + BY_KEY,
        "clicks/tumbling_window_60000_count",
        2,
        None,
    ),
}


@pytest.mark.parametrize("change", REFUSED)
def test_every_way_out_of_a_refusal_leads_to_a_running_program(programs, tmp_path, change):
    before, after, store, empty, moved = REFUSED[change]
    programs.write(before)
    programs.send(3)
    programs.run()
    programs.write(after)
    ways = ways_out(programs.refusal())
    assert len(ways) == 3 + (moved is not None)
    if "scope" in change:  # the others are the same as for a step
        ways = ways[:1]

    for number, way in enumerate(ways):
        copy = programs.copy(tmp_path / f"way-{number}")
        copy.write(after, **({"on_state_change": "accept"} if way is None else {}))
        for words in way or []:
            done = copy.does(words)
            assert done.exit_code == 0, f"{words}: {done.output} {done.exception}"
        copy.send(2)
        copy.run()

        is_move = way is not None and "rename" in way[0]
        kept = copy.kept()
        values = kept[store]
        if empty == 2:
            assert "2" in json.dumps(values) and "5" not in json.dumps(values), (way, values)
        else:
            assert values == (moved if is_move else empty), (way, values)
        assert kept["clicks/default"] == {"n": 5}
        copy.write(after)
        assert "refuse" not in copy.verdicts().values()


@pytest.mark.parametrize("between", ["", SUM.replace("sum", "total")], ids=["nothing", "another"])
def test_a_step_that_comes_back_after_a_while_goes_on_only_when_somebody_says_how(
    programs, tmp_path, between
):
    programs.write(COUNT + SUM)
    programs.send(3)
    programs.run()
    programs.write(COUNT + between, on_state_change="accept")
    programs.send(1)
    programs.run()
    programs.write(COUNT + SUM)
    message = programs.refusal()
    assert "clicks/sum, last in batch 0; what came since is not in it" in message
    ways = ways_out(message)
    assert len(ways) == 4

    for number, way in enumerate(ways):
        copy = programs.copy(tmp_path / f"way-{number}")
        copy.write(COUNT + SUM, **({"on_state_change": "accept"} if way is None else {}))
        for words in way or []:
            assert copy.does(words).exit_code == 0, words
        copy.send(2)
        copy.run()

        word = "accept" if way is None else way[0]
        seen = {"drop": 2, "accept": 5, "rewind": 6}
        assert copy.values("clicks/sum") == {"": next(n for w, n in seen.items() if w in word)}
        assert copy.values("clicks/total") == ({"": 1} if between and "rewind" not in word else {})
        copy.write(COUNT + SUM)
        assert "refuse" not in copy.verdicts().values()


REMIND = """
def remind(value, state):
    state.set_timer("later", after=3_000)
    return "seen"

numbers = clicks.group_by("n", name="numbers")
numbers.apply(remind, stateful=True, on_timer=lambda *_: "fired").to_topic(app.topic("out"))
"""


def test_what_became_due_while_a_step_was_away_is_not_written_after_the_rewind(programs):
    programs.write(COUNT + REMIND)
    programs.send(3)
    programs.run()
    programs.write(COUNT)
    for records in (6, 1):
        programs.send(records)
        programs.run()
    programs.write(COUNT + REMIND)
    (rewind,) = (way for way in ways_out(programs.refusal()) if way and "rewind" in way[0])

    assert programs.does(rewind[0]).exit_code == 0
    programs.run()
    # Of the batches that were replayed nothing. What their last record has made due comes in the
    # batch after them: the timer of number 6.
    assert outputs(programs) == ["seen"] * 3 + ["fired"]
    programs.send(1)
    programs.run()

    assert outputs(programs) == ["seen"] * 3 + ["fired"] + ["seen", "fired"]


TIMED = """
def {name}(value, state):
    if value["n"] < 3:
        state.set_timer("later", after=3_000)
    return "seen"

clicks.apply({name}, stateful=True, on_timer=lambda *_: "fired").to_topic(app.topic("out"))
"""


def test_timers_of_a_function_that_was_renamed_are_moved_or_left_when_somebody_says_so(
    programs, tmp_path
):
    programs.write(TIMED.format(name="remind"))
    programs.send(3)
    programs.run()
    programs.write(TIMED.format(name="notify"))
    message = programs.refusal()
    assert "timers that remind() in clicks has set would never fire: the program has" in message
    ways = ways_out(message)
    assert len(ways) == 3

    for number, way in enumerate(ways):
        copy = programs.copy(tmp_path / f"way-{number}")
        accept = {"on_state_change": "accept"} if way is None else {}
        copy.write(TIMED.format(name="notify"), **accept)
        for words in way or []:
            done = copy.does(words)
            assert done.exit_code == 0, (words, done.output, done.exception)
        copy.send(6)
        copy.run()

        fired = outputs(copy).count("fired")
        assert fired == (way is not None and "rename" in way[0]), (way, outputs(copy))
        if not fired:  # they became due meanwhile, and fire once there is a function for them
            assert (
                copy.does("state rename APP.py 'clicks/remind()' 'clicks/notify()'").exit_code == 0
            )
            copy.run()
            assert outputs(copy).count("fired") == 1
        copy.write(TIMED.format(name="notify"))
        assert "refuse" not in copy.verdicts().values()


def test_timers_are_moved_to_no_function_that_is_not_there(programs):
    programs.write(TIMED.format(name="remind"))
    programs.send(1)
    programs.run()
    programs.write(TIMED.format(name="notify"))

    wrong = programs.does("state rename APP.py 'clicks/remind()' 'clicks/other()'")
    assert "names no function with timers in clicks" in str(wrong.exception)
    first = re.search(r"Fix: .*: (\S+)\.$", str(wrong.exception))[1]
    unknown = programs.does("state rename APP.py 'clicks/other()' 'clicks/notify()'")
    assert "there are those of clicks/remind()." in str(unknown.exception)

    assert programs.does(f"state rename APP.py 'clicks/remind()' '{first}'").exit_code == 0


def test_drop_duplicates_before_a_change_of_key_moves_the_scopes_after_it(programs, tmp_path):
    rest = "{0}.group_by('user').stateful_map('sum', fold)\n"
    before = COUNT + rest.format("clicks")
    after = COUNT + rest.format("clicks.drop_duplicates(on='n')")
    programs.write(before)
    programs.send(3)
    programs.run()
    programs.write(after)
    message = programs.refusal()
    assert "clicks/drop_duplicates/drop_duplicates" not in message

    (move,) = next(way for way in ways_out(message) if way and "rename" in way[0])
    assert programs.does(move).exit_code == 0
    programs.send(2)
    programs.run()

    with programs.opened() as state:
        kept = {(item.scope, item.key): item.value for item in state.scan() if item.store == "sum"}
    assert list(kept.values()) == [5]


def test_a_store_that_is_taken_is_given_up_or_rewound_and_each_way_says_what_it_costs(
    programs, tmp_path
):
    programs.write(COUNT + SUM)
    programs.send(3)
    programs.run()
    programs.write(COUNT + TOTAL, on_state_change="accept")
    programs.send(1)
    programs.run()
    programs.write(COUNT + TOTAL)
    taken = str(programs.does("state rename APP.py clicks/sum clicks/total").exception)
    assert "of the records since batch 1" in taken
    ways = ways_out(taken)
    assert [way[0].split()[1] for way in ways] == ["drop", "rewind"]

    for number, (words,) in enumerate(ways):
        copy = programs.copy(tmp_path / f"way-{number}")
        copy.write(COUNT + TOTAL)
        assert copy.does(words).exit_code == 0
        assert copy.does("state rename APP.py clicks/sum clicks/total").exit_code == 0
        copy.send(2)
        copy.run()

        assert copy.values("clicks/total") == {"": 5 if "drop" in words else 6}


def test_windows_of_a_topic_that_was_renamed_are_given_once(programs):
    window = "{0}.tumbling_window(5_000).count().final().to_topic(app.topic('out'))\n"
    programs.write(window.format("clicks"))
    programs.send(8)
    programs.run()
    other = "other = app.dataframe(app.topic('other', key_deserializer='str', max_future=None))\n"
    programs.write(other + window.format("other"))
    (move,) = next(way for way in ways_out(programs.refusal()) if way and "rename" in way[0])
    assert programs.does(move).exit_code == 0

    app = mp.Application(topics_dir=programs.folder / "topics", loglevel=None)
    with app.get_producer() as producer:
        for second in (1, 6, 9, 30):  # the first is late: its window was given before
            producer.produce("other", key="ann", value="{}", timestamp=1_000_000 + 1_000 * second)
    programs.run()

    given = [(window["start"] - 1_000_000, window["value"]) for window in outputs(programs)]
    assert given == [(0, 5), (5_000, 5)]


def test_what_was_late_is_late_when_its_batch_is_replayed_under_a_new_watermark(programs):
    window = "clicks{0}.tumbling_window(2_000).count().final().to_topic(app.topic('out'))\n"
    programs.write(window.format(""))
    programs.send(4)
    programs.run()
    with programs.opened() as state:
        last = state.info().last_batch
    app = mp.Application(topics_dir=programs.folder / "topics", loglevel=None)
    with app.get_producer() as producer:
        producer.produce("clicks", key="ann", value='{"n": 0}', timestamp=1_000_500)
    programs.send(4)
    programs.run()
    assert programs.does(f"state rewind APP.py --to {last}").exit_code == 0
    programs.write(window.format(".watermark(lateness=20_000)"))
    programs.send(40)
    programs.run()

    assert [window["start"] for window in outputs(programs)].count(1_000_000) == 1


@pytest.mark.parametrize("way", ["check APP.py --accept", "state drop APP.py clicks"])
def test_a_program_without_state_needs_a_word_to_drop_what_there_is(programs, way):
    programs.write(COUNT)
    programs.send(3)
    programs.run()
    programs.write("clicks.to_topic(app.topic('out'))\n")
    message = programs.refusal()
    assert way.removesuffix(" APP.py --accept") in message

    assert programs.does(way).exit_code == 0
    programs.send(2)
    programs.run()
    assert len(outputs(programs)) == 2
    programs.write(COUNT)
    programs.send(4)
    programs.run()

    assert programs.values("clicks/default") == {"n": 4}


# --- more and fewer changes of key --------------------------------------------------------------

WINDOW = "clicks.tumbling_window(5_000).count().final().to_topic(app.topic('windows'))\n"
FLAT = "counts = clicks.apply(count, stateful=True).to_topic(app.topic('out'))\n" + WINDOW
NESTED = FLAT + "counts.group_by('user').stateful_map('sum', fold)\n"


def test_a_keyed_step_is_added_and_removed_and_all_other_state_is_kept(programs, caplog):
    programs.write("clicks.to_topic(app.topic('out'))\n")
    programs.send(1)
    programs.run()
    programs.write(FLAT)  # the first step with state of all
    programs.send(3)
    programs.run()
    programs.write(NESTED)
    before = {"clicks/default": "reshape", "clicks/tumbling_window_5000_count": "reshape"}
    assert programs.verdicts() == {**before, "clicks/user/sum": "new"}
    programs.send(2)
    with caplog.at_level("INFO", "millpond"):
        programs.run()

    assert "checkpoint was rewritten in" in caplog.text
    kept = programs.kept()
    assert (kept["clicks/default"], kept["clicks/user/sum"]) == ({"n": 5}, {"": 2})
    with programs.opened() as state:
        assert state.verify().problems == []
        assert [c.after for c in state.history("ann", "clicks/default")] == [3, 5]
        with pytest.raises(StateError, match=r"other key changes(.|\n)*Fix:"):
            state.rewind(9)
        state.rewind(0)
    programs.run()
    assert programs.values("clicks/default") == {"n": 5}

    programs.write(FLAT)
    programs.send(2)
    programs.run()
    assert programs.verdicts() == {**dict.fromkeys(before, "reuse"), "clicks/user/sum": "orphaned"}
    programs.write(NESTED, on_state_change="accept")
    programs.send(4)
    programs.run()
    kept = programs.kept()
    assert (kept["clicks/default"], kept["clicks/user/sum"]) == ({"n": 11}, {"": 6})
    assert [value["n"] for value in outputs(programs)] == list(range(12))
    assert [(w["start"], w["value"]) for w in outputs(programs, "windows")] == [
        (1_000_000, 4),
        (1_005_000, 5),
    ]
    with programs.opened() as state:
        assert programs.partitions() == {state.info().partitions}


def test_a_rewritten_checkpoint_has_the_partitions_of_the_state_not_of_the_session(programs):
    programs.write(FLAT)
    programs.send(3)
    programs.run()
    before = programs.partitions()
    session = SparkSession.builder.getOrCreate()  # whose settings all later ones begin with
    session.conf.set(PARTITIONS, "7")
    try:
        programs.write(NESTED)
        programs.send(2)
        programs.run()
    finally:
        session.conf.unset(PARTITIONS)

    assert programs.partitions() == before
    assert programs.values("clicks/default") == {"n": 5}


def test_a_step_moves_after_another_change_of_key_with_its_state(programs):
    shops = "{}.group_by('user', name='shop').apply(count, stateful=True)\n"
    programs.write("counts = " + COUNT + "users = counts.group_by('user')\n"
                   "users.apply(count, stateful=True)\n" + shops.format("counts"))  # fmt: skip
    programs.send(3)
    programs.run()
    programs.write("counts = " + COUNT + shops.format("clicks"))
    programs.send(2)
    programs.run()
    home = programs.folder / "state" / "g"
    for place in (home / "generations" / "0002").glob("[oc]*s/*[1-9]*"):
        place.unlink()  # as if it had been killed right after the reshape, and had lost a file
    (home / "clock-0002.json").unlink()
    with pytest.raises(
        DamagedStateError, match=r"0002/offsets/1 is dam(.|\n)*Fix: millpond state repair"
    ):
        programs.run()
    assert programs.does("state repair APP.py").exit_code == 0
    programs.run()

    with programs.opened() as state:
        found = {f"{item.scope}/{item.store}": item.value for item in state.scan()}
    assert found == {"clicks/default": 5, "clicks/shop/default": 5, "clicks/user/default": 3}


def test_a_reshape_that_was_cut_short_is_done_again_and_a_begun_batch_is_not_written_twice(
    programs,
):
    programs.write(FLAT, max_records_per_batch=2)
    programs.send(4)
    programs.run()
    home = programs.folder / "state" / "g"
    commits = sorted(
        (home / "generations" / "0001" / "commits").glob("[0-9]*"), key=lambda f: int(f.name)
    )
    for file in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        file.unlink()  # it was killed after its outputs were written
    manifest = (home / "manifest.json").read_bytes()

    programs.write(NESTED, max_records_per_batch=2)
    programs.run()
    done = programs.values("clicks/default")
    (home / "manifest.json").write_bytes(manifest)  # as it was before the last step of the change
    programs.send(3)
    programs.run()

    assert done == {"n": 4}
    kept = programs.kept()
    assert (kept["clicks/default"], kept["clicks/user/sum"]) == ({"n": 7}, {"": 2 + 3})
    assert [value["n"] for value in outputs(programs)] == list(range(7))
    assert sorted(f.name for f in (home / "generations").iterdir()) == ["0001", "0003"]
