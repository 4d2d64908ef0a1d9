"""Every method of a frame, with the meaning Quix Streams gives it."""

import pytest

from millpond import Application, Count, ListSink, TopicConfig, message_context
from millpond.errors import ConfigError, MillpondError, PlanError, StepError
from millpond.testing import ListSource, ManualClock, frame, run_local


@pytest.fixture
def app(tmp_path):
    return Application(topics_dir=tmp_path, state_dir=tmp_path, loglevel=None)


def count(value, state):
    state.set("n", state.get("n", 0) + 1)
    return state.get("n")


# --- apply ----------------------------------------------------------------------------------


def test_apply_replaces_the_value():
    assert run_local(frame().apply(lambda value: value * 10), [1, 2]) == [10, 20]


def test_apply_passes_none_on_like_any_other_value():
    sdf = frame().apply(lambda value: None).apply(lambda value: ("got", value))

    assert run_local(sdf, [1]) == [("got", None)]


def test_a_missing_value_reaches_the_function_as_none(app):
    sdf = app.dataframe(app.topic("in")).apply(lambda value: ("got", value))

    assert run_local(sdf, [("k", None)]) == [("got", None)]


def test_apply_does_not_change_the_frame_it_is_called_on():
    sdf = frame()
    sdf.apply(lambda value: "branch")
    main = sdf.apply(lambda value: "main")

    assert sorted(run_local(main, [1])) == ["branch", "main"]


def test_apply_with_expand_gives_one_record_for_each_item():
    sdf = frame().apply(lambda value: range(value), expand=True)

    assert run_local(sdf, [2, 0, 3]) == [0, 1, 0, 1, 2]


def test_expanded_records_keep_key_timestamp_and_headers():
    sdf = frame().set_headers(lambda *record: [("h", b"1")])
    sdf = sdf.apply(lambda value: [value, value], expand=True)
    sdf = sdf.apply(lambda *record: record, metadata=True)

    assert run_local(sdf, [("k", "v", 7)]) == [("v", "k", 7, [("h", b"1")])] * 2


def test_expand_takes_any_iterable():
    def twice(value):
        yield value
        yield value

    assert run_local(frame().apply(twice, expand=True), ["a"]) == ["a", "a"]


def test_expand_of_something_that_is_not_iterable_fails_on_that_record():
    sdf = frame().apply(lambda value: 5, expand=True)

    with pytest.raises(StepError, match="must return several values"):
        run_local(sdf, [1])


def test_expanding_twice_keeps_the_order():
    sdf = frame().apply(lambda value: [value, value + 1], expand=True)
    sdf = sdf.apply(lambda value: [value, -value], expand=True)

    assert run_local(sdf, [1, 10]) == [1, -1, 2, -2, 10, -10, 11, -11]


def test_the_order_of_expanded_records_is_kept_through_changes_of_key():
    def remember(value, state):
        state.set("seen", [*state.get("seen", []), value])
        return state.get("seen")

    sdf = frame().apply(lambda value: [value, value + 1], expand=True)
    sdf = sdf.group_by(lambda value: value % 3, name="three").apply(
        lambda value, state: value, stateful=True
    )
    sdf = sdf.group_by(lambda value: "all", name="all").apply(remember, stateful=True)

    assert run_local(sdf, [1, 10])[-1] == [1, 2, 10, 11]


def test_apply_with_metadata_gets_key_timestamp_and_headers():
    sdf = frame().apply(
        lambda value, key, timestamp, headers: (value, key, timestamp, headers), metadata=True
    )

    assert run_local(sdf, [("k", "v", 5)]) == [("v", "k", 5, None)]


def test_apply_with_state_gets_the_state_of_the_key():
    sdf = frame().apply(count, stateful=True)

    assert run_local(sdf, [("a", 0), ("b", 0), ("a", 0)]) == [1, 1, 2]


def test_apply_with_both_gets_the_state_last():
    def all_of_it(value, key, timestamp, headers, state):
        state.set("n", timestamp)
        return value, key, timestamp, headers, state.get("n")

    sdf = frame().apply(all_of_it, stateful=True, metadata=True)

    assert run_local(sdf, [("k", "v", 5)]) == [("v", "k", 5, None, 5)]


def test_apply_with_expand_and_state():
    def spread(value, state):
        state.set("n", state.get("n", 0) + value)
        return [state.get("n")] * value

    assert run_local(frame().apply(spread, stateful=True, expand=True), [1, 2]) == [1, 3, 3]


def test_two_stateful_steps_of_one_key_share_the_state():
    sdf = frame().apply(count, stateful=True).apply(count, stateful=True)

    assert run_local(sdf, [("a", 0), ("a", 0)]) == [2, 4]


def test_a_record_without_a_time_gets_that_of_the_clock():
    clock = ManualClock(1000)
    sdf = frame().apply(lambda value, key, timestamp, headers: timestamp, metadata=True)

    assert run_local(sdf, ["a", ("k", "b", 5)], clock=clock) == [1000, 5]


# --- update, filter -------------------------------------------------------------------------


def test_update_is_in_place_and_ignores_what_the_function_returns():
    sdf = frame()

    same = sdf.update(lambda value: value.append(1) or "ignored")

    assert same is sdf
    assert run_local(sdf, [[0]]) == [[0, 1]]


def test_update_with_state_and_metadata():
    def note(value, key, timestamp, headers, state):
        state.set("n", state.get("n", 0) + 1)
        value.update(key=key, n=state.get("n"))

    sdf = frame().update(note, stateful=True, metadata=True)

    assert run_local(sdf, [("a", {}), ("a", {})]) == [{"key": "a", "n": 1}, {"key": "a", "n": 2}]


@pytest.mark.parametrize("truthy", [1, "x", [0], True])
def test_filter_keeps_what_is_true_in_any_way(truthy):
    assert run_local(frame().filter(lambda value: truthy), ["v"]) == ["v"]


@pytest.mark.parametrize("falsy", [0, "", [], None, False])
def test_filter_drops_what_is_false_in_any_way(falsy):
    assert run_local(frame().filter(lambda value: falsy), ["v"]) == []


def test_filter_gives_a_new_frame_and_leaves_the_old_one():
    sdf = frame()
    sdf.filter(lambda value: False)

    assert run_local(sdf.apply(lambda value: value), [1]) == [1]


def test_filter_with_state_sees_each_record_of_the_key():
    def is_new(value, state):
        seen = state.exists("seen")
        state.set("seen", True)
        return not seen

    sdf = frame().filter(is_new, stateful=True)

    assert run_local(sdf, [("a", 1), ("a", 2), ("b", 3)]) == [1, 3]


def test_filter_with_metadata():
    sdf = frame().filter(lambda value, key, timestamp, headers: timestamp > 5, metadata=True)

    assert run_local(sdf, [(None, "old", 1), (None, "new", 9)]) == ["new"]


# --- group_by -------------------------------------------------------------------------------


def test_group_by_a_field_gives_state_of_that_field():
    sdf = frame().group_by("user").apply(count, stateful=True)

    assert run_local(sdf, [{"user": "a"}, {"user": "b"}, {"user": "a"}]) == [1, 1, 2]


def test_group_by_a_function_gives_the_key_it_returns():
    sdf = frame().group_by(lambda value: value % 2, name="parity")
    sdf = sdf.apply(lambda value, key, timestamp, headers: (key, value), metadata=True)

    assert run_local(sdf, [1, 2]) == [(1, 1), (0, 2)]


def test_group_by_a_named_function_is_named_after_it():
    def parity(value):
        return value % 2

    sdf = frame().group_by(parity).apply(count, stateful=True)
    run = run_local(sdf, [1, 3])

    assert run.state(1, scope="list/parity") == {"n": 2}


def test_key_by_is_group_by():
    assert run_local(frame().key_by("k").apply(count, stateful=True), [{"k": 1}]) == [1]


def test_group_by_can_be_used_several_times():
    sdf = frame().apply(lambda value, state: {**value, "all": count(value, state)}, stateful=True)
    sdf = sdf.group_by("a").apply(
        lambda value, state: {**value, "n_a": count(value, state)}, stateful=True
    )
    sdf = sdf.group_by("b").apply(
        lambda value, state: {**value, "n_b": count(value, state)}, stateful=True
    )
    sdf = sdf.group_by("a", name="a-again").apply(
        lambda value, state: {**value, "again": count(value, state)}, stateful=True
    )

    run = run_local(sdf, [{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1, "b": 2}])

    assert list(run) == [
        {"a": 1, "b": 1, "all": 1, "n_a": 1, "n_b": 1, "again": 1},
        {"a": 2, "b": 1, "all": 2, "n_a": 1, "n_b": 2, "again": 1},
        {"a": 1, "b": 2, "all": 3, "n_a": 2, "n_b": 1, "again": 2},
    ]
    assert run.state(1, scope="list/a/b") == {"n": 2}
    assert run.state(1, scope="list/a/b/a-again") == {"n": 2}


def test_group_by_a_field_that_is_missing_names_the_fields_there_are():
    sdf = frame().group_by("user").apply(count, stateful=True)

    with pytest.raises(StepError, match="no field 'user'"):
        run_local(sdf, [{"name": "a"}])


def test_group_by_a_lambda_without_a_name_is_refused():
    with pytest.raises(ConfigError, match="needs a name"):
        frame().group_by(lambda value: 1)


def test_two_groups_of_one_name_are_refused_before_anything_runs():
    sdf = frame()
    sdf.group_by("a").apply(count, stateful=True)
    sdf.group_by("a").apply(count, stateful=True)

    with pytest.raises(PlanError, match="same name"):
        run_local(sdf, [])


def test_group_by_keeps_timestamp_and_headers():
    sdf = frame().set_headers(lambda *record: [("h", b"1")]).group_by("k")
    sdf = sdf.apply(
        lambda value, key, timestamp, headers, state: (timestamp, headers),
        stateful=True,
        metadata=True,
    )

    assert run_local(sdf, [("x", {"k": 1}, 99)]) == [(99, [("h", b"1")])]


# --- columns --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (lambda sdf: sdf["a"] + sdf["b"], 10),
        (lambda sdf: sdf["a"] + 1, 8),
        (lambda sdf: 1 + sdf["a"], 8),
        (lambda sdf: sdf["a"] - sdf["b"], 4),
        (lambda sdf: 10 - sdf["a"], 3),
        (lambda sdf: sdf["a"] * 2, 14),
        (lambda sdf: 2 * sdf["a"], 14),
        (lambda sdf: sdf["a"] / 2, 3.5),
        (lambda sdf: 14 / sdf["a"], 2.0),
        (lambda sdf: sdf["a"] % sdf["b"], 1),
        (lambda sdf: -sdf["a"], -7),
        (lambda sdf: (-sdf["a"]).abs(), 7),
        (lambda sdf: (sdf["a"] + sdf["b"]) * sdf["a"] - 1, 69),
        (lambda sdf: sdf["a"] == 7, True),
        (lambda sdf: sdf["a"] != 7, False),
        (lambda sdf: sdf["a"] < sdf["b"], False),
        (lambda sdf: sdf["a"] <= 7, True),
        (lambda sdf: sdf["a"] > sdf["b"], True),
        (lambda sdf: sdf["a"] >= 8, False),
        (lambda sdf: (sdf["a"] > 1) & (sdf["b"] > 5), False),
        (lambda sdf: (sdf["a"] > 1) | (sdf["b"] > 5), True),
        (lambda sdf: ~(sdf["a"] > 1), False),
        (lambda sdf: sdf["a"].isin([1, 7]), True),
        (lambda sdf: sdf["none"].isnull(), True),
        (lambda sdf: sdf["a"].isnull(), False),
        (lambda sdf: sdf["a"].notnull(), True),
        (lambda sdf: sdf["none"].is_(None), True),
        (lambda sdf: sdf["a"].isnot(None), True),
        (lambda sdf: sdf["text"].contains("ell"), True),
        (lambda sdf: sdf["deep"]["x"][1], "one"),
        (lambda sdf: sdf["a"].apply(lambda a: a * 100), 700),
        (lambda sdf: sdf.contains("a"), True),
        (lambda sdf: sdf.contains(["a", "z"]), False),
    ],
)
def test_column_expressions(expression, expected):
    sdf = frame()
    sdf["result"] = expression(sdf)
    value = {"a": 7, "b": 3, "none": None, "text": "hello", "deep": {"x": ["zero", "one"]}}

    (result,) = run_local(sdf, [value])

    assert result == {**value, "result": expected}


def test_the_second_operand_is_looked_at_only_where_the_first_does_not_decide():
    sdf = frame()
    sdf["safe"] = sdf.contains("a") & (sdf["a"] > 1)
    sdf["either"] = ~sdf.contains("a") | (sdf["a"] > 1)

    assert run_local(sdf, [{}]) == [{"safe": False, "either": True}]


def test_projection_keeps_the_named_fields_in_their_order():
    (result,) = run_local(frame()[["c", "a"]], [{"a": 1, "b": 2, "c": 3}])

    assert list(result.items()) == [("c", 3), ("a", 1)]


def test_filtering_by_a_column():
    sdf = frame()
    sdf = sdf[(sdf["a"] > 1) & sdf["a"].isin([2, 3])]

    assert run_local(sdf, [{"a": 1}, {"a": 2}, {"a": 4}]) == [{"a": 2}]


def test_filtering_by_an_applied_function():
    sdf = frame()
    sdf = sdf[sdf.apply(lambda value: value["a"] > 1)]

    assert run_local(sdf, [{"a": 1}, {"a": 2}]) == [{"a": 2}]


def test_filtering_by_a_stateful_function():
    sdf = frame()
    sdf = sdf[sdf.apply(lambda value, state: count(value, state) % 2 == 0, stateful=True)]

    assert run_local(sdf, [{"a": 1}, {"a": 2}]) == [{"a": 2}]


def test_assigning_a_constant():
    sdf = frame()
    sdf["kind"] = "click"

    assert run_local(sdf, [{}]) == [{"kind": "click"}]


def test_assigning_a_column_is_in_place():
    sdf = frame()
    sdf["b"] = sdf["a"] * 2
    sdf["c"] = sdf["b"] + 1

    assert run_local(sdf, [{"a": 1}]) == [{"a": 1, "b": 2, "c": 3}]


def test_assigning_an_applied_function_leaves_no_branch_behind():
    sdf = frame()
    sdf["b"] = sdf.apply(lambda value: value["a"] + 1).apply(lambda value: value * 10)

    assert run_local(sdf, [{"a": 1}]) == [{"a": 1, "b": 20}]


def test_assigning_a_stateful_function():
    sdf = frame()
    sdf["n"] = sdf.apply(count, stateful=True)
    sdf["both"] = sdf.apply(
        lambda value, key, timestamp, headers, state: (key, state.get("n")),
        stateful=True,
        metadata=True,
    )

    run = run_local(sdf, [("k", {}), ("k", {})])

    assert list(run) == [{"n": 1, "both": ("k", 1)}, {"n": 2, "both": ("k", 2)}]


def test_assigning_to_a_value_that_is_no_dict_says_so():
    sdf = frame()
    sdf["a"] = 1

    with pytest.raises(StepError, match="cannot be set on a value of type int"):
        run_local(sdf, [5])


def test_a_missing_field_is_named_in_the_error():
    sdf = frame()
    sdf = sdf[sdf["price"] > 1]

    with pytest.raises(StepError, match="no field 'price'"):
        run_local(sdf, [{"cost": 1}])


def test_a_column_of_another_frame_is_refused():
    one, two = frame(), frame()

    with pytest.raises(ConfigError, match="another frame"):
        one[two["a"] > 1]


def test_expressions_of_two_frames_are_refused():
    one, two = frame(), frame()

    with pytest.raises(ConfigError, match="different frames"):
        one["a"] + two["a"]


def test_a_column_has_no_truth_value():
    sdf = frame()

    with pytest.raises(ConfigError, match="use & for and"):
        bool(sdf["a"] > 1)


def test_a_filtered_frame_cannot_be_used_as_a_column():
    sdf = frame()

    with pytest.raises(ConfigError, match="only sdf.apply"):
        sdf["a"] = sdf.filter(lambda value: True)


def test_anything_else_in_brackets_is_refused():
    with pytest.raises(ConfigError, match="takes a field"):
        frame()[5]


# --- fill, drop -----------------------------------------------------------------------------


def test_fill_puts_none_or_a_value_where_a_field_is_missing_or_none():
    sdf = frame()

    same = sdf.fill("a", "b", c=0, d=1)

    assert same is sdf
    assert run_local(sdf, [{"a": 1, "c": None, "d": 5}]) == [{"a": 1, "b": None, "c": 0, "d": 5}]


def test_fill_without_fields_is_refused():
    with pytest.raises(ConfigError, match="needs fields"):
        frame().fill()


def test_drop_takes_fields_out_in_place():
    sdf = frame()

    same = sdf.drop(["a", "b"])

    assert same is sdf
    assert run_local(sdf, [{"a": 1, "b": 2, "c": 3}]) == [{"c": 3}]


def test_drop_of_a_missing_field_fails_unless_errors_are_ignored():
    with pytest.raises(StepError, match="no field 'a'"):
        run_local(frame().drop("a"), [{"b": 1}])

    assert run_local(frame().drop("a", errors="ignore"), [{"b": 1}]) == [{"b": 1}]


# --- timestamps and headers -----------------------------------------------------------------


def test_set_timestamp_changes_the_time_of_what_follows(app):
    out = app.topic("out")
    sdf = app.dataframe(app.topic("in"))
    sdf = sdf.set_timestamp(lambda value, key, timestamp, headers: timestamp + value["late"])
    sdf = sdf.apply(lambda value, key, timestamp, headers: timestamp, metadata=True).to_topic(out)

    run = run_local(sdf, [("k", {"late": 5}, 100)])

    assert list(run) == [105]
    assert run.topics["out"][0].timestamp == 105


def test_a_timestamp_set_before_a_change_of_key_is_kept_after_it():
    sdf = frame().set_timestamp(lambda *record: 7).group_by(lambda value: 1, name="one")
    sdf = sdf.apply(
        lambda value, key, timestamp, headers, state: timestamp, stateful=True, metadata=True
    )

    assert run_local(sdf, [("k", 1, 100)]) == [7]


@pytest.mark.parametrize("given", [float("nan"), float("inf"), "1", None, True, 1e300])
def test_set_timestamp_must_give_a_number(given):
    sdf = frame().set_timestamp(lambda *record: given)

    with pytest.raises(StepError, match="a number of milliseconds"):
        run_local(sdf, [1])


@pytest.mark.parametrize(("given", "taken"), [(1.0, 1), (1.9, 1), (-0.5, -1), (7, 7)])
def test_a_timestamp_that_is_a_float_is_rounded_down(given, taken):
    sdf = frame().set_timestamp(lambda *record: given)
    sdf = sdf.apply(lambda value, key, timestamp, headers: timestamp, metadata=True)

    assert run_local(sdf, [1]) == [taken]


def test_set_headers_changes_the_headers_of_what_follows(app):
    out = app.topic("out")
    sdf = app.dataframe(app.topic("in"))
    sdf = sdf.set_headers(lambda value, key, timestamp, headers: [("a", b"1"), ("a", b"2")])
    sdf = sdf.apply(lambda value, key, timestamp, headers: headers, metadata=True).to_topic(out)

    run = run_local(sdf, [1])

    assert list(run) == [[("a", b"1"), ("a", b"2")]]
    assert run.topics["out"][0].headers == [("a", b"1"), ("a", b"2")]


def test_set_headers_can_take_headers_away(app):
    sdf = app.dataframe(app.topic("in")).set_headers(lambda *record: [("a", b"1")])
    sdf = sdf.set_headers(lambda *record: None).to_topic(app.topic("out"))

    assert run_local(sdf, [1]).topics["out"][0].headers is None


def test_a_timestamp_extractor_gives_the_time(app):
    topic = app.topic("in", timestamp_extractor=lambda value, headers, timestamp, kind: value["t"])
    sdf = app.dataframe(topic).apply(lambda v, key, timestamp, headers: timestamp, metadata=True)

    assert run_local(sdf, [("k", {"t": 42}, 1)]) == [42]


def test_a_timestamp_extractor_holds_for_state_directly_after_the_topic(app):
    topic = app.topic("in", timestamp_extractor=lambda value, headers, timestamp, kind: value["t"])
    sdf = app.dataframe(topic).apply(
        lambda v, key, timestamp, headers, state: timestamp, stateful=True, metadata=True
    )

    assert run_local(sdf, [("k", {"t": 42}, 1)]) == [42]


# --- to_topic -------------------------------------------------------------------------------


def test_to_topic_writes_and_records_go_on(app):
    out = app.topic("out")
    sdf = app.dataframe(app.topic("in"))

    same = sdf.to_topic(out)
    run = run_local(sdf.apply(lambda value: "on"), [(b"k", {"a": 1}, 5)])

    assert same is sdf
    assert list(run) == ["on"]
    assert [(r.key, r.value, r.timestamp) for r in run.topics["out"]] == [(b"k", b'{"a":1}', 5)]


def test_to_topic_writes_the_value_as_it_is_at_that_place(app):
    sdf = app.dataframe(app.topic("in"))
    sdf["n"] = 1
    sdf.to_topic(app.topic("one"))
    sdf["n"] = 2
    sdf.to_topic(app.topic("two"))

    run = run_local(sdf, [{}])

    assert [r.value for r in run.topics["one"]] == [b'{"n":1}']
    assert [r.value for r in run.topics["two"]] == [b'{"n":2}']


def test_to_topic_with_a_function_chooses_a_topic_for_each_record(app):
    big, small = app.topic("big"), app.topic("small", value_serializer="str")
    sdf = app.dataframe(app.topic("in", value_deserializer="str", value_serializer="str"))
    sdf.to_topic(lambda value, key, timestamp, headers: big if len(value) > 2 else small)

    run = run_local(sdf, [("k", "abc"), ("l", "d"), ("m", "efg")])

    assert [(r.key, r.value) for r in run.topics["big"]] == [(b"k", b'"abc"'), (b"m", b'"efg"')]
    assert [(r.key, r.value) for r in run.topics["small"]] == [(b"l", b"d")]


def test_a_function_that_returns_no_topic_fails_on_that_record(app):
    sdf = app.dataframe(app.topic("in")).to_topic(lambda *record: "big")

    with pytest.raises(StepError, match="must return a topic"):
        run_local(sdf, [1])


@pytest.mark.parametrize(
    ("key", "written"),
    [("ä", "ä".encode()), (b"b", b"b"), (5, b"5"), (None, None), ([1, "a"], b'[1,"a"]')],
)
def test_to_topic_writes_the_key_that_a_function_gives(app, key, written):
    sdf = app.dataframe(app.topic("in")).to_topic(app.topic("out"), key=lambda value: key)

    run = run_local(sdf, [("old", 1)])

    assert run.topics["out"][0].key == written


def test_to_topic_with_chosen_topic_and_key(app):
    out = app.topic("out", key_serializer="int")
    sdf = app.dataframe(app.topic("in")).to_topic(lambda *record: out, key=lambda value: value["k"])

    assert run_local(sdf, [{"k": 7}]).topics["out"][0].key == b"\x00\x00\x00\x07"


def test_to_topic_uses_the_serializers_of_the_topic(app):
    out = app.topic("out", value_serializer="double", key_serializer="str")
    sdf = app.dataframe(source=ListSource([], "in")).to_topic(out)

    run = run_local(sdf, [("ä", 0.5)])

    assert (run.topics["out"][0].key, run.topics["out"][0].value) == (
        "ä".encode(),
        b"?\xe0" + b"\0" * 6,
    )


def test_the_key_of_group_by_is_written(app):
    sdf = app.dataframe(app.topic("in")).group_by("user").to_topic(app.topic("out"))

    assert run_local(sdf, [(b"old", {"user": "ann"})]).topics["out"][0].key == b"ann"


def test_the_key_of_group_by_is_written_after_a_stateful_step(app):
    sdf = app.dataframe(app.topic("in")).group_by("user").apply(count, stateful=True)
    sdf.to_topic(app.topic("out"))

    run = run_local(sdf, [(b"old", {"user": 5}), (b"old", {"user": None})])

    assert [r.key for r in run.topics["out"]] == [b"5", None]


def test_a_value_of_none_is_written_as_a_missing_value(app):
    sdf = app.dataframe(app.topic("in")).apply(lambda value: None).to_topic(app.topic("out"))

    assert run_local(sdf, [1]).topics["out"][0].value is None


def test_what_a_topic_cannot_write_names_the_step(app):
    sdf = app.dataframe(app.topic("in")).apply(lambda value: object()).to_topic(app.topic("out"))

    with pytest.raises(StepError, match=r"to_topic 'out' \(test_frame.py:\d+\)"):
        run_local(sdf, [1])


def test_keys_of_a_topic_are_read_with_its_deserializer(app):
    topic = app.topic("in", key_deserializer="int", key_serializer="int")
    sdf = app.dataframe(topic).apply(lambda value, key, timestamp, headers: key, metadata=True)

    assert run_local(sdf, [(5, {})]) == [5]


# --- print, sink ----------------------------------------------------------------------------


def test_print_shows_values_in_order_and_records_go_on():
    sdf = frame()

    same = sdf.print()
    run = run_local(sdf.apply(lambda value: value * 2), [1, 2])

    assert same is sdf
    assert run.printed == [1, 2]
    assert list(run) == [2, 4]


def test_print_with_metadata_shows_where_a_record_came_from():
    run = run_local(frame().print(metadata=True), [("k", {"a": 1}, 5)])

    assert run.printed == [
        {
            "a": 1,
            "_key": "k",
            "_timestamp": 5,
            "_headers": None,
            "_topic": "list",
            "_partition": 0,
            "_offset": 0,
        }
    ]


def test_a_list_sink_fills_with_values():
    sink, sdf = ListSink(), frame()

    nothing = sdf.apply(lambda value: value * 2).sink(sink)
    run_local(sdf, [1, 2, 3], batches=[2])

    assert nothing is None
    assert sink == [2, 4, 6]


def test_a_list_sink_with_metadata():
    sink, sdf = ListSink(metadata=True), frame()
    sdf.sink(sink)

    run_local(sdf, [("k", 1, 5)])

    assert sink == [
        {
            "_value": 1,
            "_key": "k",
            "_timestamp": 5,
            "_headers": None,
            "_topic": "list",
            "_partition": 0,
            "_offset": 0,
        }
    ]


def test_a_function_is_a_sink_of_records_and_delivery_id():
    calls, sdf = [], frame()
    sdf.sink(lambda records, delivery_id: calls.append((delivery_id, [r.value for r in records])))

    run_local(sdf, [1, 2, 3], batches=[2])

    assert [values for _, values in calls] == [[1, 2], [3]]
    assert calls[0][0] != calls[1][0]


def test_an_object_with_write_is_a_sink():
    class Totals:
        def __init__(self):
            self.total = 0

        def write(self, batch):
            self.total += sum(record.value for record in batch)
            self.last = (len(batch), batch.size)

    sink, sdf = Totals(), frame()
    sdf.sink(sink)

    run_local(sdf, [1, 2, 3])

    assert (sink.total, sink.last) == (6, (3, 3))


def test_a_sink_that_fails_stops_the_run_and_gets_the_batch_again():
    from millpond.testing import LocalEngine

    seen, sdf = [], frame().apply(count, stateful=True)

    def save(records, delivery_id):
        seen.append((delivery_id, [r.value for r in records]))
        if len(seen) == 1:
            raise OSError("disk full")

    sdf.sink(save)
    engine = LocalEngine(sdf)
    engine.feed(["a", "b"])
    with pytest.raises(OSError, match="disk full"):
        engine.run()

    engine.run()

    assert seen[0] == seen[1]
    assert [values for _, values in seen] == [[1, 2], [1, 2]]
    assert engine.state(None) == {"n": 2}


def test_something_that_is_no_sink_is_refused():
    with pytest.raises(ConfigError, match="object with write"):
        frame().sink(5)


# --- concat, branches -----------------------------------------------------------------------


def test_concat_of_two_sources_gives_the_records_of_both(app):
    one, two = app.dataframe(app.topic("one")), app.dataframe(app.topic("two"))
    both = one.concat(two).apply(lambda value: value + 1)

    assert sorted(run_local(both, {"one": [1, 2], "two": [10]})) == [2, 3, 11]


def test_state_after_concat_is_shared_by_both_sources(app):
    one, two = app.dataframe(app.topic("one")), app.dataframe(app.topic("two"))
    both = one.concat(two).apply(count, stateful=True)

    run = run_local(both, {"one": [("a", 0), ("b", 0)], "two": [("a", 0)]})

    assert sorted(run) == [1, 1, 2]


def test_concat_of_sources_whose_keys_are_read_differently_brings_keys_of_one_kind_together(app):
    one = app.dataframe(app.topic("one", key_deserializer="str"))
    two = app.dataframe(source=ListSource([], "two"))
    both = one.concat(two).apply(
        lambda value, key, timestamp, headers, state: (key, count(value, state)),
        stateful=True,
        metadata=True,
    )

    run = run_local(both, {"one": [("a", 0)], "two": [("a", 0), (b"a", 0)]})

    assert sorted(run, key=repr) == [("a", 1), ("a", 2), (b"a", 1)]


def test_concat_of_branches_gives_each_record_from_both():
    sdf = frame()
    both = sdf.apply(lambda value: ("x", value)).concat(sdf.apply(lambda value: ("y", value)))

    assert sorted(run_local(both.apply(lambda value: value), [1, 2])) == [
        ("x", 1),
        ("x", 2),
        ("y", 1),
        ("y", 2),
    ]


def test_concat_of_a_stateful_branch_and_a_plain_one():
    sdf = frame()
    both = sdf.apply(count, stateful=True).concat(sdf.apply(lambda value: "plain"))

    assert sorted(run_local(both.apply(lambda value: value), [0, 0]), key=str) == [
        1,
        2,
        "plain",
        "plain",
    ]


def test_concat_with_itself_gives_each_record_twice():
    sdf = frame()

    assert run_local(sdf.concat(sdf).apply(lambda value: value), [1, 2]) == [1, 1, 2, 2]


def test_branches_of_one_source_share_the_state_of_the_key():
    sdf = frame()
    sdf.apply(count, stateful=True)
    run = run_local(sdf.apply(count, stateful=True), ["x"])

    assert sorted(run) == [1, 2]


def test_concat_with_a_frame_of_another_application_is_refused(app):
    with pytest.raises(ConfigError, match="same application"):
        app.dataframe(app.topic("in")).concat(frame())


def test_branches_get_copies_of_the_value():
    sdf = frame()
    spoiled = sdf.apply(lambda value: value.append("spoiled") or value)
    clean = sdf.apply(lambda value: value)

    assert sorted(run_local(clean.concat(spoiled).apply(lambda v: v), [[1]]), key=len) == [
        [1],
        [1, "spoiled"],
    ]


def test_branches_get_copies_whatever_the_type():
    class Box:
        def __init__(self):
            self.items = []

    sdf = frame().apply(lambda value: Box())
    sdf.apply(lambda box: box.items.append(1) or len(box.items))
    run = run_local(sdf.apply(lambda box: box.items.append(2) or len(box.items)), [0])

    assert list(run) == [1, 1]


def test_branches_get_copies_after_a_change_of_key():
    sdf = frame().group_by(lambda value: 1, name="one").apply(lambda v, state: v, stateful=True)
    sdf.update(lambda value: value.append("main"))
    sdf.apply(lambda value: value.append("branch") or value)
    run = run_local(sdf.apply(lambda value: value), [[0]])

    assert sorted(run) == [[0, "main"], [0, "main", "branch"]]


# --- stateful_map ---------------------------------------------------------------------------


def test_stateful_map_threads_the_state_of_the_key():
    sdf = frame().stateful_map(
        "sum", lambda key, value, total: ((key, total + value), total + value), 0
    )

    assert run_local(sdf, [("a", 1), ("b", 5), ("a", 2)]) == [("a", 1), ("b", 5), ("a", 3)]


def test_stateful_map_without_an_initial_value_begins_with_none():
    assert run_local(
        frame().stateful_map("s", lambda key, value, state: (state, value)), [1, 2]
    ) == [None, 1]


def test_a_new_state_of_none_drops_the_state_and_the_next_call_sees_the_initial_one():
    def until_two(key, value, n):
        return n, (None if n == 2 else n + 1)

    run = run_local(frame().stateful_map("n", until_two, initial=0), ["x"] * 5)

    assert list(run) == [0, 1, 2, 0, 1]
    assert run.state(None, store="n") == {"": 2}


def test_dropped_state_leaves_no_key_behind():
    run = run_local(
        frame().stateful_map("n", lambda key, value, n: (n, None)), [("a", 1), ("b", 2)]
    )

    assert all(count == 0 for count in run.reports[0].keys.values())


def test_an_initial_function_is_called_for_each_key_that_has_no_state():
    made = []

    def fresh():
        made.append(1)
        return []

    sdf = frame().stateful_map(
        "seen", lambda key, value, seen: ([*seen, value], [*seen, value]), fresh
    )

    run = run_local(sdf, [("a", 1), ("a", 2), ("b", 3)], copy_functions=False)

    assert list(run) == [[1], [1, 2], [3]]
    assert len(made) == 2


def test_two_stateful_maps_keep_their_own_state_and_leave_that_of_others_alone():
    sdf = frame().stateful_map("one", lambda key, value, n: (value, n + 1), 0)
    sdf = sdf.stateful_map("two", lambda key, value, n: (value, n + 10), 0)
    run = run_local(sdf.apply(count, stateful=True), ["x", "x"])

    assert run.state(None, store="one") == {"": 2}
    assert run.state(None, store="two") == {"": 20}
    assert run.state(None) == {"n": 2}


def test_two_stateful_maps_of_one_name_are_refused():
    sdf = (
        frame().stateful_map("n", lambda k, v, s: (v, s)).stateful_map("n", lambda k, v, s: (v, s))
    )

    with pytest.raises(PlanError, match="give each its own name"):
        run_local(sdf, [])


def test_a_stateful_map_that_does_not_return_a_pair_fails_on_that_record():
    sdf = frame().stateful_map("n", lambda key, value, state: 5)

    with pytest.raises(StepError, match="stateful_map 'n'"):
        run_local(sdf, [1])


# --- the place of a record ------------------------------------------------------------------


def test_message_context_names_topic_partition_and_offset(app):
    sdf = app.dataframe(app.topic("in")).filter(lambda value: value > 1)
    sdf = sdf.group_by(lambda value: 0, name="all").apply(
        lambda value, state: (
            message_context().topic,
            message_context().partition,
            message_context().offset,
        ),
        stateful=True,
    )

    assert run_local(sdf, [1, 2, 3], batches=[1]) == [("in", 0, 1), ("in", 0, 2)]


def test_message_context_outside_of_a_record_is_refused():
    run_local(frame().apply(lambda value: value), [1])

    with pytest.raises(MillpondError, match="Fix:"):
        message_context()


# --- the application's frames ---------------------------------------------------------------


def test_a_list_becomes_a_source_named_list(app):
    sdf = app.dataframe(source=[1, 2]).apply(lambda value: value + 1)

    assert run_local(sdf) == [2, 3]


def test_two_lists_get_two_names(app):
    one, two = app.dataframe(source=[1]), app.dataframe(source=[2])

    assert sorted(run_local(one.concat(two).apply(lambda value: value))) == [1, 2]


def test_one_topic_has_one_frame(app):
    topic = app.topic("in", config=TopicConfig(num_partitions=3))
    app.dataframe(topic)

    with pytest.raises(ConfigError, match="a frame for 'in' already"):
        app.dataframe(topic)


def test_a_frame_needs_a_topic_or_a_source(app):
    with pytest.raises(ConfigError, match="a topic or a source"):
        app.dataframe()


def test_numbers_and_arrays_of_numpy_move_on_as_they_are():
    import numpy

    values = run_local(frame().apply(lambda value: {"m": numpy.float64(value)}), [1.5])

    assert type(values[0]["m"]) is numpy.float64
    assert values == [{"m": 1.5}]


@pytest.mark.parametrize("key", [{"a": 1}, {1, 2}, [1]])
def test_a_key_that_is_not_hashable_is_refused(key):
    counted = frame().group_by(lambda value: key, name="k").apply(lambda v, s: v, stateful=True)

    with pytest.raises(StepError, match="must be hashable(.|\n)*Fix:"):
        run_local(counted, [1])


def test_a_frame_that_was_used_as_a_column_can_still_be_continued():
    sdf = frame()
    doubled = sdf.apply(lambda value: value["a"] * 2)
    sdf["b"] = doubled
    doubled.apply(lambda value: value + 1)

    assert run_local(sdf, [{"a": 1}]) == [{"a": 1, "b": 2}, 3]


@pytest.mark.parametrize("groups", [1, 3, 8])
def test_totals_of_a_batch_after_expanded_records_come_in_the_order_of_the_records(groups):
    sdf = frame().apply(lambda value: value, expand=True)
    sdf = sdf.group_by(lambda value: value, name="letter").agg(emit="batch", n=Count())
    sdf.apply(lambda value, key, timestamp, headers: (key, value["n"]), metadata=True)

    values = run_local(sdf, [["d", "b"], ["a", "d", "c"]], batches=[], groups=groups)

    assert values == [("d", 2), ("b", 1), ("a", 1), ("c", 1)]
