"""The nine promises, as properties of the local engine."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond import Application
from millpond.driver.gather import gather, to_records
from millpond.errors import StepError
from millpond.program.plan import make_plan
from millpond.state.codec import Codec
from millpond.state.key_context import KeyContext
from millpond.state.layout import Pages
from millpond.state.store import MemoryStore
from millpond.state.view import State
from millpond.testing import CRASH, END, ListSource, LocalEngine, frame, run_local
from millpond.wire.clock import Clock
from millpond.wire.packed_rows import EDGE, family_of
from millpond.worker import record_loop
from millpond.worker.key_group import run_group
from millpond.worker.read_source import entered, run_source
from millpond.worker.settings import Settings
from millpond.worker.stage import StageRunner

quick = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

KEYS = [None, b"", "", 0, False, 0.0, "ä€😀", b"\x00\xff", (1, "a"), "k", b"k", 1, True]

keys = st.sampled_from(KEYS)
numbers = st.integers(-5, 5)
records = st.lists(st.tuples(keys, numbers, st.integers(0, 10**6)), max_size=30)
cuts = st.lists(st.integers(0, 7), max_size=12)
groups = st.integers(1, 9)


def total(value, state):
    state.set("sum", state.get("sum", 0) + value)
    state.set("seen", [*state.get("seen", []), value])
    return {"n": value, "sum": state.get("sum")}


def last_three(key, value, window):
    window = (*window, value["n"])[-3:]
    return {**value, "last": window}, (None if value["n"] == 0 else window)


def program(app):
    """Stateful steps under three keys, branches, expand, filters, and two topics."""
    out, side = app.topic("out"), app.topic("side")
    sdf = app.dataframe(source=ListSource([], "in"))
    running = sdf.apply(total, stateful=True)
    running = running.filter(lambda value: value["n"] != 3)
    running.to_topic(out)
    running = running.stateful_map("last", last_three, initial=())
    by_parity = running.group_by(lambda value: value["n"] % 2, name="parity")
    by_parity = by_parity.apply(lambda value: [value, {**value, "copy": True}], expand=True)
    by_parity = by_parity.update(
        lambda value, state: (
            state.set("order", [*state.get("order", []), value["n"]]),
            value.update(place=len(state.get("order"))),
        ),
        stateful=True,
    )
    by_parity.to_topic(side, key=lambda value: str(value["n"]))
    return by_parity.group_by(lambda value: value["place"] % 3, name="place").apply(
        lambda value, key, timestamp, headers, state: (
            state.set("n", state.get("n", 0) + 1),
            (key, timestamp, state.get("n"), value),
        )[1],
        stateful=True,
        metadata=True,
    )


@pytest.fixture
def app(tmp_path):
    return Application(topics_dir=tmp_path, state_dir=tmp_path, loglevel=None)


def everything(run):
    """What a run gave: values, topics, and every name of every key of every scope."""
    return list(run), dict(run.topics), state_of(run.engine)


def state_of(engine):
    found = {}
    view = KeyContext(Codec(), undo=False)
    for (scope, _), blobs in engine.stores.items():
        pages = Pages(blobs, view.codec, engine._groups)
        view.open(pages)
        for key, _ in pages.scan():
            view.bind(key)
            for store in next(s.stores for s in engine.plan.stages if s.scope == scope):
                state = State(view, store)
                found[scope, key, store] = {name: state.get(name) for name in state}
    return found


# --- 1: batch-boundary independence ---------------------------------------------------------


@quick
@given(records=records, cut=cuts, groups=groups)
def test_every_cut_and_every_number_of_key_groups_give_the_same(
    tmp_path_factory, records, cut, groups
):
    app = Application(topics_dir=tmp_path_factory.getbasetemp() / "t", loglevel=None)
    sdf = program(app)
    whole = everything(run_local(sdf, records, groups=8))

    parts = everything(run_local(sdf, records, batches=cut, groups=groups))

    assert parts == whole


@quick
@given(records=records, cut=cuts)
def test_handing_output_on_in_small_chunks_changes_nothing(tmp_path_factory, records, cut):
    app = Application(topics_dir=tmp_path_factory.getbasetemp() / "t", loglevel=None)
    sdf = program(app)
    many = records * 12
    whole = everything(run_local(sdf, many))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_loop, "_CHUNK_BYTES", 0)
        parts = everything(run_local(sdf, many, batches=cut))

    assert parts == whole


def test_batches_of_one_record_give_what_one_batch_gives(app):
    sdf = program(app)
    items = [(key, i % 7 - 3, i) for i, key in enumerate(KEYS * 5)]

    whole = everything(run_local(sdf, items))
    single = everything(run_local(sdf, items, batches=[1] * len(items)))

    assert single == whole


def test_a_size_of_batch_is_applied_to_all_of_the_input():
    run = run_local(frame().apply(lambda value: value), [1, 2, 3, 4, 5], batches=2)

    assert [report.read for report in run.reports] == [2, 2, 1]


def test_a_list_assigned_to_a_field_is_a_fresh_one_for_each_record():
    sdf = frame()
    sdf["tags"] = []
    sdf.update(lambda value: value["tags"].append(value["n"]))

    assert run_local(sdf, [{"n": 1}, {"n": 2}]) == [{"n": 1, "tags": [1]}, {"n": 2, "tags": [2]}]


def test_a_list_given_to_fill_is_a_fresh_one_for_each_record():
    sdf = frame().fill(tags=[])
    sdf.update(lambda value: value["tags"].append(value["n"]))

    assert run_local(sdf, [{"n": 1}, {"n": 2}]) == [{"n": 1, "tags": [1]}, {"n": 2, "tags": [2]}]


def test_a_mutable_initial_state_is_a_fresh_one_for_each_key():
    def gather_values(key, value, seen):
        seen.append(value)
        return list(seen), seen

    sdf = frame().stateful_map("seen", gather_values, initial=[])

    assert run_local(sdf, [("a", 1), ("b", 2), ("a", 3)]) == [[1], [2], [1, 3]]


# --- 3: per-key order -----------------------------------------------------------------------


@quick
@given(records=records, cut=cuts, groups=groups)
def test_records_of_a_key_reach_the_function_in_the_order_of_the_input(records, cut, groups):
    def remember(value, state):
        state.set("seen", [*state.get("seen", []), value])

    sdf = frame().update(remember, stateful=True)

    run = run_local(sdf, records, batches=cut, groups=groups)

    codec = Codec()
    expected = {}
    for key, value, _ in records:
        expected.setdefault(None if key is None else codec.encode(key), []).append(value)
    assert {key: entry["seen"] for (_, key, _), entry in state_of(run.engine).items()} == expected


@quick
@given(data=st.data(), values=st.lists(st.lists(numbers, max_size=3), min_size=1, max_size=12))
def test_the_order_does_not_depend_on_what_the_shuffle_did(data, values):
    def remember(value, state):
        state.set("seen", [*state.get("seen", []), value])
        return state.get("seen")

    sdf = frame()
    spread = sdf.apply(lambda value: value, expand=True)
    keyed = spread.group_by(lambda value: value % 2, name="parity").apply(remember, stateful=True)
    plan = make_plan(keyed._graph, collect=True)
    straight = group_rows(plan, values, lambda rows: rows)

    shuffled = group_rows(plan, values, lambda rows: data.draw(st.permutations(rows)))

    assert shuffled == straight


def test_records_of_one_origin_that_come_by_two_ways_keep_one_order_whatever_the_shuffle_did():
    def remember(value, state):
        state.set("seen", [*state.get("seen", []), value])
        return state.get("seen")

    def tag(value, state):
        return [*value, state.get("n", 0)]

    sdf = frame()
    one = sdf.group_by(lambda value: value[0] % 2, name="one").apply(tag, stateful=True)
    two = sdf.group_by(lambda value: value[0] % 3, name="two").apply(
        lambda value, state: [*value, "two"], stateful=True
    )
    both = one.concat(two).group_by(lambda value: 0, name="all").apply(remember, stateful=True)
    plan = make_plan(both._graph, collect=True)

    straight = group_rows(plan, [[1], [2], [3]], lambda rows: rows)
    reverse = group_rows(plan, [[1], [2], [3]], lambda rows: rows[::-1])

    assert reverse == straight


def group_rows(plan, values, shuffle, groups=4):
    """Run a plan, one source partition per value, shuffling the rows before each layer."""
    source = ListSource([], "list")
    settings_ = Settings(groups)
    zero = StageRunner(plan, plan.stages[0], settings_)
    rows = []
    for number, value in enumerate(values):
        (part,) = source.table([value], 0).combine_chunks().to_batches()
        rows += run_source(zero, 0, entered(part, 0, number, 0), Clock(1))
    rows += zero.drain()
    stores = {}
    for layer in range(1, plan.layers + 1):
        scopes = {stage.scope: stage for stage in plan.stages if stage.layer == layer}
        waiting, members = [], {}
        for row in shuffle(rows):
            if row.scope in scopes and family_of(row.kind)[0] == EDGE:
                members.setdefault((row.scope, row.grp), []).append(row)
            else:
                waiting.append(row)
        rows = waiting
        for (scope, group), found in members.items():
            store = stores.setdefault((scope, group), MemoryStore())
            runner = StageRunner(plan, scopes[scope], settings_)
            rows += run_group(runner, found, store, group)
    gathered = gather(shuffle(rows), 0)
    return {n: to_records(b, plan.topics) for n, b in gathered.outputs.items()}


# --- 4: state is a value --------------------------------------------------------------------

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.sets(st.integers(), max_size=3)
    ),
    max_leaves=6,
)


def spoil(value):
    """Change a value in every place where it can be changed."""
    if isinstance(value, list):
        for item in value:
            spoil(item)
        value.append("spoiled")
    elif isinstance(value, dict):
        for item in list(value.values()):
            spoil(item)
        value["spoiled"] = True
    elif isinstance(value, set):
        value.add("spoiled")


@quick
@given(value=plain, cut=cuts)
def test_changing_what_get_returned_changes_nothing(value, cut):
    def touch(record, state):
        if record == "set":
            state.set("v", value)
        got = state.get("v")
        spoil(got)
        return state.get("v")

    run = run_local(frame().apply(touch, stateful=True), ["set", "look", "look"], batches=cut)

    assert list(run) == [value, value, value]
    assert run.state(None) == {"v": value}


@quick
@given(content=st.lists(st.integers(), max_size=3), cut=cuts)
def test_changing_a_value_after_set_changes_nothing(content, cut):
    def touch(record, state):
        if record == "set":
            mine = {"content": list(content), "of": {1, 2}}
            state.set("v", mine)
            spoil(mine)
        return state.get("v")

    run = run_local(frame().apply(touch, stateful=True), ["set", "look"], batches=cut)

    assert list(run) == [{"content": content, "of": {1, 2}}] * 2


def test_changing_a_value_after_a_stateful_step_does_not_reach_the_state():
    sdf = frame().apply(
        lambda value, state: (state.set("v", [value]), state.get("v"))[1], stateful=True
    )
    sdf.update(lambda value: value.append("spoiled"))

    run = run_local(sdf, [1])

    assert list(run) == [[1, "spoiled"]]
    assert run.state(None) == {"v": [1]}


def test_a_default_that_is_changed_is_not_kept():
    def touch(value, state):
        seen = state.get("seen", [])
        seen.append(value)
        return len(seen)

    run = run_local(frame().apply(touch, stateful=True), [1, 2, 3])

    assert list(run) == [1, 1, 1]
    assert run.state(None) == {}


# --- 5: all or nothing per record, 9: counts reconcile --------------------------------------

operations = st.lists(
    st.tuples(
        st.sampled_from(["set", "delete", "append", "large"]),
        st.sampled_from(["a", "b", "ü", (1, 2)]),
        st.integers(0, 9),
    ),
    max_size=4,
)
programs = st.lists(
    st.tuples(st.sampled_from([None, "x", "y", 0]), st.tuples(operations, st.booleans())),
    max_size=15,
)


def perform(value, state):
    steps, _ = value
    for verb, name, number in steps:
        if verb == "set":
            state.set(name, number)
        elif verb == "delete":
            state.delete(name)
        elif verb == "large":
            state.set(name, bytes([number]) * 40_000)
        else:
            old = state.get(name)
            state.set(name, [*(old if type(old) is list else []), number])
    return value


def fail_on_mark(value):
    if value[1]:
        raise ValueError("marked")
    return value


def failing_program(app):
    out = app.topic("out", value_serializer=lambda value: repr(value).encode())
    sdf = app.dataframe(source=ListSource([], "in"))
    sdf = sdf.apply(perform, stateful=True).to_topic(out)
    doubled = sdf.apply(lambda value: [(value[0], False), value], expand=True)
    return doubled.apply(lambda value, state: fail_on_mark(value), stateful=True)


@quick
@given(items=programs, cut=cuts, groups=groups)
def test_a_record_that_fails_leaves_nothing_but_a_dead_letter(tmp_path_factory, items, cut, groups):
    app = Application(topics_dir=tmp_path_factory.getbasetemp() / "t", loglevel=None)
    sdf = failing_program(app)
    items = [(key, value, i) for i, (key, value) in enumerate(items)]
    good = [item for item in items if not item[1][1]]
    failed = [i for i, item in enumerate(items) if item[1][1]]

    run = run_local(sdf, items, batches=cut, groups=groups, on_error="dead-letter")

    clean = run_local(sdf, good)
    assert state_of(run.engine) == state_of(clean.engine)
    assert list(run) == list(clean)
    assert [r.value for r in run.topics["out"]] == [r.value for r in clean.topics["out"]]
    assert [int(dict(r.headers)["millpond.offset"]) for r in run.dead_letters] == failed
    assert all(report.reconciles for report in run.reports)
    assert sum(report.dead for report in run.reports) == len(failed)
    assert sum(report.read for report in run.reports) == len(items)


@quick
@given(records=records, cut=cuts)
def test_counts_reconcile_in_every_report(tmp_path_factory, records, cut):
    app = Application(topics_dir=tmp_path_factory.getbasetemp() / "t", loglevel=None)
    sdf = program(app)

    run = run_local(sdf, records, batches=cut)

    assert all(report.reconciles for report in run.reports)
    assert sum(report.read for report in run.reports) == len(records)
    assert sum(report.outputs for report in run.reports) == len(run)


def test_a_name_that_was_deleted_by_a_failed_record_keeps_its_place():
    def touch(value, state):
        if value == "fail":
            state.delete("a")
            raise ValueError
        for name in value:
            state.set(name, 1)
        return list(state.keys())

    run = run_local(
        frame().apply(touch, stateful=True), ["ab", "fail", "b"], on_error="dead-letter"
    )

    assert list(run) == [["a", "b"], ["a", "b"]]


def test_the_callback_lets_a_record_go_and_its_writes_are_undone():
    seen = []

    def handle(error, context, logger):
        seen.append((str(error), context.offset))
        return True

    def touch(value, state):
        state.set("last", value)
        if value == 2:
            raise ValueError("two")
        return value

    program = frame().apply(touch, stateful=True)
    run = run_local(program, [1, 2], on_processing_error=handle, copy_functions=False)

    assert list(run) == [1]
    assert run.state(None) == {"last": 1}
    assert seen == [("two", 1)]
    assert run.reports[0].reconciles
    assert run.dead_letters == []


def test_a_record_the_callback_does_not_let_go_stops_the_run():
    def fail(value):
        raise ValueError("two")

    with pytest.raises(StepError, match="two"):
        run_local(frame().apply(fail), [1], on_processing_error=lambda *facts: False)


def test_a_run_that_stops_on_an_error_continues_with_the_same_record():
    is_repaired = []

    def touch(value, state):
        state.set("sum", state.get("sum", 0) + value)
        if value == 3 and not is_repaired:
            raise ValueError("three")
        return state.get("sum")

    engine = LocalEngine(frame().apply(touch, stateful=True))
    engine.feed([1, 2, 3, 4])
    with pytest.raises(StepError, match="offset 2"):
        engine.run([2])
    is_repaired.append(True)

    run = engine.run()

    assert list(run) == [1, 3, 6, 10]
    assert run.state(None) == {"sum": 10}


def test_a_batch_that_stops_in_front_of_an_end_mark_comes_again_whole():
    is_repaired = []

    def touch(value):
        if not is_repaired:
            raise ValueError
        return value

    engine = LocalEngine(frame().apply(touch))
    engine.feed([1, 2, END, 3])
    with pytest.raises(StepError):
        engine.run()
    is_repaired.append(True)

    assert list(engine.run()) == [1, 2]
    assert list(engine.run()) == [1, 2, 3]


# --- 6: key isolation -----------------------------------------------------------------------


@quick
@given(records=records, cut=cuts, groups=groups)
def test_each_key_sees_its_own_state_only(records, cut, groups):
    def count(value, state):
        state.set("n", state.get("n", 0) + 1)
        return state.get("n")

    run = run_local(frame().apply(count, stateful=True), records, batches=cut, groups=groups)

    counts = {}
    expected = []
    for key, _, _ in records:
        kind = (type(key), key)
        counts[kind] = counts.get(kind, 0) + 1
        expected.append(counts[kind])
    assert list(run) == expected
    for (_, key), n in counts.items():
        assert run.state(key) == {"n": n}


@quick
@given(values=st.lists(st.sampled_from(KEYS), max_size=25), cut=cuts, groups=groups)
def test_keys_given_by_group_by_are_kept_apart_by_type_too(values, cut, groups):
    def count(value, key, timestamp, headers, state):
        state.set("n", state.get("n", 0) + 1)
        return key, state.get("n")

    sdf = frame().group_by(lambda value: value[0], name="it")
    sdf = sdf.apply(count, stateful=True, metadata=True)

    run = run_local(sdf, [[value] for value in values], batches=cut, groups=groups)

    counts = {}
    for value, (key, n) in zip(values, run, strict=True):
        kind = (type(value), value)
        counts[kind] = counts.get(kind, 0) + 1
        assert (type(key), key, n) == (*kind, counts[kind])


def test_keys_of_a_topic_are_its_bytes(app):
    def count(value, key, timestamp, headers, state):
        state.set("n", state.get("n", 0) + 1)
        return key, state.get("n")

    sdf = app.dataframe(app.topic("in")).apply(count, stateful=True, metadata=True)

    run = run_local(sdf, [(None, 1), (b"", 2), ("", 3), ("ä", 4), ("ä".encode(), 5), (None, 6)])

    a = "ä".encode()
    assert list(run) == [(None, 1), (b"", 1), (b"", 2), (a, 1), (a, 2), (None, 2)]


# --- crashes --------------------------------------------------------------------------------


@quick
@given(records=records, cut=cuts, data=st.data())
def test_crash_marks_anywhere_change_nothing(tmp_path_factory, records, cut, data):
    app = Application(topics_dir=tmp_path_factory.getbasetemp() / "t", loglevel=None)
    sdf = program(app)
    undisturbed = everything(run_local(sdf, records))
    disturbed = list(records)
    for place in data.draw(st.lists(st.integers(0, len(records)), max_size=4)):
        disturbed.insert(place, CRASH)

    assert everything(run_local(sdf, disturbed, batches=cut)) == undisturbed


@pytest.mark.parametrize("cut", [[], [1]])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("source", ["one", "two"])
def test_a_crash_mark_in_one_of_two_sources_loses_nothing_of_the_other(app, cut, place, source):
    one = app.dataframe(source=ListSource([], "one"))
    two = app.dataframe(source=ListSource([], "two"))
    both = one.concat(two).apply(lambda value: value)
    inputs = {"one": [1, 2], "two": [10, 20]}
    inputs[source] = [*inputs[source][:place], CRASH, *inputs[source][place:]]

    assert sorted(run_local(both, inputs, batches=cut)) == [1, 2, 10, 20]


def test_an_end_mark_in_one_source_loses_nothing_of_the_other(app):
    one = app.dataframe(source=ListSource([], "one"))
    two = app.dataframe(source=ListSource([], "two"))
    engine = LocalEngine(one.concat(two).apply(lambda value: value))
    engine.feed([1, END, 2], "one")
    engine.feed([10], "two")
    engine.run()
    engine.feed([20, 30], "two")

    engine.run()
    run = engine.run()

    assert sorted(run) == [1, 2, 10, 20, 30]


def test_an_end_mark_ends_the_run_and_the_next_one_continues():
    engine = LocalEngine(frame().apply(lambda value: value))
    engine.feed([1, END, 2, 3])

    assert list(engine.run()) == [1]
    assert list(engine.run()) == [1, 2, 3]
