"""What becomes of every store when a program changes, as a table."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from millpond import Application, Count, Max, SparkSource, Sum
from millpond.errors import StateError
from millpond.program.plan import make_plan
from millpond.storage.claims import claims_of
from millpond.storage.compare import check, compare, fingerprint, needs_reshape
from millpond.storage.manifest import Manifest
from millpond.testing import frame


def keep(value, state):
    return value


def fold(name):
    return lambda sdf: sdf.stateful_map(name, lambda key, value, state: (value, state))


def apply(sdf):
    return sdf.apply(keep, stateful=True)


def by(name, *steps):
    """Steps after a group_by, beside the others."""

    def add(sdf):
        grouped = sdf.group_by(name)
        for step in steps:
            grouped = step(grouped)
        return sdf

    return add


def tumbling(ms, how="count", name=None, **options):
    return lambda sdf: getattr(sdf.tumbling_window(ms, name=name), how)().final(**options)


def session(ms, name=None):
    return lambda sdf: sdf.session_window(ms, name=name).agg(n=Count()).final()


def counted(size):
    return lambda sdf: sdf.tumbling_count_window(size).count().final()


def table(name):
    return lambda sdf: sdf.update_state(lambda batch, state: batch, name=name)


def agg(name, **aggregations):
    return lambda sdf: sdf.agg(name=name, **(aggregations or {"n": Count()}))


def program(*steps, source="in"):
    """Each step is a branch of its own, so that its records keep their key."""
    sdf = frame(name=source)
    for step in steps:
        step(sdf)
    if not steps:
        sdf.apply(str)
    return make_plan(sdf._graph)


def known_of(*plans):
    """The manifest after some programs have run, one after the other."""
    manifest = Manifest(8, 1)
    for plan in plans:
        manifest.say(claims_of(plan, manifest.claims()), None)
    return manifest


def said(verdicts):
    return {verdict.name: verdict.says for verdict in verdicts}


CHANGES = {
    "nothing": ([apply], [apply], {"in/default": "reuse"}, {"in/default": "reuse"}),
    "a step is added": (
        [apply],
        [apply, fold("sum")],
        {"in/default": "reuse", "in/sum": "new"},
        {"in/default": "reuse", "in/sum": "new"},
    ),
    "a step is removed": (
        [apply, fold("sum")],
        [apply],
        {"in/default": "reuse", "in/sum": "orphaned"},
        {"in/default": "reuse", "in/sum": "orphaned"},
    ),
    "another step name": (
        [apply, fold("sum")],
        [apply, fold("total")],
        {"in/default": "reuse", "in/total": "refuse", "in/sum": "orphaned"},
        {"in/default": "reuse", "in/total": "new", "in/sum": "orphaned"},
    ),
    "another window length": (
        [apply, session(1_800_000)],
        [apply, session(1_200_000)],
        {
            "in/default": "reuse",
            "in/session_window_1200000": "refuse",
            "in/session_window_1800000": "orphaned",
        },
        {
            "in/default": "reuse",
            "in/session_window_1200000": "new",
            "in/session_window_1800000": "orphaned",
        },
    ),
    "another length of a named window": (
        [session(1_800_000, "visits")],
        [session(1_200_000, "visits")],
        {
            "in/visits_session_window_1200000": "refuse",
            "in/visits_session_window_1800000": "orphaned",
        },
        {
            "in/visits_session_window_1200000": "new",
            "in/visits_session_window_1800000": "orphaned",
        },
    ),
    "another grouping": (
        [by("user", apply), apply],
        [by("customer", apply), apply],
        {"in/default": "reuse", "in/customer/default": "refuse", "in/user/default": "orphaned"},
        {"in/default": "reuse", "in/customer/default": "new", "in/user/default": "orphaned"},
    ),
    "a window that closes otherwise": (
        [tumbling(5_000)],
        [tumbling(5_000, closing_strategy="key")],
        {"in/tumbling_window_5000_count": "refuse"},
        {"in/tumbling_window_5000_count": "reset"},
    ),
    "values become an aggregation of the same name": (
        [fold("totals")],
        [agg("totals")],
        {"in/totals": "refuse"},
        {"in/totals": "reset"},
    ),
    "an aggregation becomes values of the same name": (
        [agg("totals")],
        [fold("totals")],
        {"in/totals": "refuse"},
        {"in/totals": "reset"},
    ),
    "another kind of window": (
        [tumbling(5_000)],
        [session(5_000)],
        {"in/session_window_5000": "refuse", "in/tumbling_window_5000_count": "orphaned"},
        {"in/session_window_5000": "new", "in/tumbling_window_5000_count": "orphaned"},
    ),
    "values go and a window comes": (
        [apply, fold("seen")],
        [apply, session(5_000)],
        {"in/default": "reuse", "in/session_window_5000": "new", "in/seen": "orphaned"},
        {"in/default": "reuse", "in/session_window_5000": "new", "in/seen": "orphaned"},
    ),
    "values go and a table comes": (
        [fold("seen")],
        [table("users")],
        {"in/users": "new", "in/seen": "orphaned"},
        {"in/users": "new", "in/seen": "orphaned"},
    ),
    "a window that counts records becomes one over time": (
        [counted(5)],
        [session(5_000)],
        {"in/session_window_5000": "new", "in/tumbling_count_window_5_count": "orphaned"},
        {"in/session_window_5000": "new", "in/tumbling_count_window_5_count": "orphaned"},
    ),
    "a scope and its two steps": (
        [by("user", fold("a"), fold("b"))],
        [by("shop", fold("c"), fold("d"))],
        {
            "in/shop/c": "refuse",
            "in/shop/d": "refuse",
            "in/user/a": "orphaned",
            "in/user/b": "orphaned",
        },
        {"in/shop/c": "new", "in/shop/d": "new", "in/user/a": "orphaned", "in/user/b": "orphaned"},
    ),
    "two scopes with their steps": (
        [by("u", fold("a")), by("v", fold("b"))],
        [by("w", fold("c")), by("x", fold("d"))],
        {"in/w/c": "refuse", "in/x/d": "refuse", "in/u/a": "orphaned", "in/v/b": "orphaned"},
        {"in/w/c": "new", "in/x/d": "new", "in/u/a": "orphaned", "in/v/b": "orphaned"},
    ),
    "two steps go and one comes in another scope": (
        [by("u", fold("a")), by("v", fold("b"))],
        [by("w", fold("c"))],
        {"in/w/c": "refuse", "in/u/a": "orphaned", "in/v/b": "orphaned"},
        {"in/w/c": "new", "in/u/a": "orphaned", "in/v/b": "orphaned"},
    ),
    "the only pair in two scopes": (
        [by("user", fold("a"))],
        [by("shop", fold("b"))],
        {"in/shop/b": "refuse", "in/user/a": "orphaned"},
        {"in/shop/b": "new", "in/user/a": "orphaned"},
    ),
    "no state any more": ([apply], [], {"in/default": "refuse"}, {"in/default": "dropped"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_has_its_verdicts_without_and_with_the_word(change):
    before, after, refused, accepted = CHANGES[change]
    known, plan = known_of(program(*before)), program(*after)

    without_word, with_word = compare(known, plan, "g"), compare(known, plan, "g", accept=True)

    assert said(without_word) == refused
    assert said(with_word) == accepted
    assert all(verdict.can_accept for verdict in without_word if verdict.says == "refuse")
    assert all("Fix" not in verdict.fix and not verdict.fix for verdict in with_word)


def test_an_orphan_of_long_ago_is_no_candidate_for_a_rename():
    removed = known_of(program(apply, fold("users")), program(apply))

    verdicts = compare(removed, program(apply, fold("shops")), "g")

    assert said(verdicts) == {"in/default": "reuse", "in/shops": "new", "in/users": "orphaned"}
    check(removed, program(apply, fold("shops")), "g")


def test_a_step_that_comes_back_lacks_what_came_since_and_needs_a_word():
    plan = program(apply, fold("users"))
    removed = known_of(plan, program(apply))

    (refused,) = (v for v in compare(removed, plan, "g") if v.says == "refuse")

    assert refused.name == "in/users" and refused.can_accept
    assert "what came since is not in it" in refused.why
    assert said(compare(removed, plan, "g", accept=True))["in/users"] == "reuse"


def test_a_step_that_comes_back_in_place_of_another_is_accepted_once_it_is_dropped():
    plan = program(fold("users"))
    replaced = known_of(plan, program(fold("shops")))

    (refused,) = (v for v in compare(replaced, plan, "g") if v.says == "refuse")

    drop = "millpond state drop APP.py in/users, then millpond check --accept APP.py."
    assert f"or let it start empty: {drop}" in refused.fix


def test_a_refusal_names_all_stores_that_are_refused():
    plan = program(apply, fold("users"), fold("shops"))
    known = known_of(plan, program(apply))

    with pytest.raises(StateError) as refused:
        check(known, plan, "g")

    assert "used in/shops; what came since is not in it." in str(refused.value)
    assert "\nAlso refused, as `check` shows: in/users.\nFix: " in str(refused.value)


def test_a_new_step_is_no_rename_of_one_that_has_only_other_keys_now():
    known = known_of(program(by("user", fold("sum"), fold("most"))))
    plan = program(fold("seen"), by("customer", fold("sum"), fold("most")))

    found = {verdict.name: verdict for verdict in compare(known, plan, "g")}

    assert found["in/seen"].says == "new"
    assert "rename APP.py in/user in/customer;" in found["in/customer/sum"].fix


def test_all_stores_of_an_older_manifest_count_as_used():
    known = known_of(program(apply, fold("users")), program(apply))
    known.active = None

    with pytest.raises(StateError, match=r"in/users(.|\n)*in/shops(.|\n)*Fix:"):
        check(known, program(apply, fold("shops")), "g")


def test_only_what_could_be_moved_is_proposed_for_a_rename():
    known = known_of(program(by("user", apply), fold("old"), tumbling(5_000)))

    def fix(*steps):
        verdicts = compare(known, program(*steps), "g")
        return next(verdict.fix for verdict in verdicts if verdict.says == "refuse")

    # A step, and a whole scope.
    assert "APP.py in/old in/new" in fix(by("user", apply), fold("new"), tumbling(5_000))
    assert "APP.py in/user in/person;" in fix(by("person", apply), fold("old"), tumbling(5_000))
    # A window of another length, and values under other keys.
    assert "rename" not in fix(by("user", apply), fold("old"), tumbling(9_000))
    assert "rename" not in fix(apply, fold("old"), tumbling(5_000))
    # Each names what to drop.
    dropped = "millpond state drop APP.py in/tumbling_window_5000_count."
    assert fix(by("user", apply), fold("old"), tumbling(9_000)).endswith(dropped)


@pytest.mark.parametrize(("before", "after"), [(fold("n"), apply), (apply, fold("n"))])
def test_no_rename_is_proposed_between_stateful_map_and_a_function_with_state(before, after):
    known, plan = known_of(program(before)), program(after)

    (refused,) = (v for v in compare(known, plan, "g", False) if v.says == "refuse")

    assert "state rename" not in refused.fix
    assert "--accept" in refused.fix


def test_no_rename_is_proposed_where_nobody_can_tell_which_store_became_which():
    known = known_of(program(by("u", fold("a")), by("v", fold("b"))))

    verdicts = compare(known, program(by("w", fold("c")), by("x", fold("d"))), "g")

    for verdict in verdicts[:2]:
        assert "in/u/a, in/v/b" in verdict.why
        assert "state rename" not in verdict.fix
        assert verdict.fix.endswith("millpond state drop APP.py in/u/a in/v/b.")
    # One of the scopes has kept the name of its step, so it can be recognised.
    (one, other, *_) = compare(known, program(by("w", fold("a")), by("x", fold("d"))), "g")
    assert "state rename APP.py in/u in/w;" in one.fix
    assert "state rename" not in other.fix


def test_two_renames_beside_a_step_that_goes_are_not_taken_for_new_steps():
    known = known_of(program(by("u", fold("a")), by("v", fold("b")), by("w", fold("c"))))

    verdicts = compare(known, program(by("x", fold("d")), by("y", fold("e"))), "g")

    new = {verdict.name: verdict for verdict in verdicts if verdict.says == "refuse"}
    assert sorted(new) == ["in/x/d", "in/y/e"]
    assert all("state rename" not in verdict.fix and verdict.can_accept for verdict in new.values())


def test_a_topic_of_several_steps_that_was_renamed_moves_as_a_whole():
    known = known_of(program(fold("a"), fold("b"), source="in"))

    of_both = compare(known, program(fold("a"), fold("b"), source="clicks"), "g")
    steps_too = compare(known, program(fold("c"), fold("d"), source="clicks"), "g")

    assert said(of_both)["clicks/a"] == said(steps_too)["clicks/c"] == "refuse"
    assert "state rename APP.py in clicks;" in of_both[0].fix
    assert "state rename" not in steps_too[0].fix


def test_a_renamed_topic_of_several_scopes_is_taken_for_the_one_whose_other_names_stayed():
    def both(orders):
        app = Application(loglevel=None)
        sdf, customers, payments = (
            app.dataframe(app.topic(name)) for name in (orders, "customers", "payments")
        )
        customers.concat(sdf).apply(keep, stateful=True)
        sdf.group_by("order").concat(payments.group_by("order")).apply(keep, stateful=True)
        return make_plan(app.graph)

    known = known_of(both("orders"))
    found = {verdict.name: verdict.fix for verdict in compare(known, both("purchases"), "g")}

    one, other = (
        "customers+orders customers+purchases",
        ("orders/order+payments/order payments/order+purchases/order"),
    )
    fixes = found["customers+purchases/default"], found["payments/order+purchases/order/default"]
    for fix, move, wrong in zip(fixes, (one, other), (other, one), strict=True):
        assert f"rename APP.py {move};" in fix
        assert wrong.split()[0] + " " + move.split()[1] not in fix


def test_a_scope_and_a_store_that_were_renamed_move_one_after_the_other():
    known = known_of(program(by("user", fold("a"))))

    (fix, _) = (verdict.fix for verdict in compare(known, program(by("shop", fold("b"))), "g"))

    first, then = "APP.py in/user in/shop", "APP.py in/shop/a in/shop/b"
    assert f"state rename {first}, then millpond state rename {then};" in fix


def test_keys_in_another_form_are_accepted_as_a_loss_of_their_scope():
    known = known_of(program(apply, fold("old")), program(apply, fold("sum")))
    known.keys["in"] = "str"

    verdicts = compare(known, program(apply, fold("sum")), "g")

    # Nothing would find an orphan of that scope again, if its step came back.
    assert [verdict.then for verdict in verdicts] == ["reset", "reset", "dropped"]
    assert "keys of 'in' in group 'g' were str and are now typed" in verdicts[0].why
    assert verdicts[0].fix.endswith("millpond state drop APP.py in.")


def test_an_older_program_is_refused_whatever_was_accepted():
    known = known_of(program(apply, fold("sum")))
    known.versions = {"in": {"default": 2}}

    with pytest.raises(StateError, match=r"in/default .* is of version 2(.|\n)*Fix: run the newer"):
        check(known, program(apply, fold("total")), "g", accept=True)


def test_an_older_program_is_given_the_batch_to_which_the_state_must_go_back():
    known = known_of(program(apply))
    known.say(replace(known.claims(), versions={"in": {"default": 2}}), 41)
    known.say(replace(known.claims(), versions={"in": {"default": 3}}), 50)

    (verdict,) = compare(known, program(apply), "g")

    assert verdict.fix.endswith("it ran: millpond state rewind APP.py --to 41.")
    known.earlier = []  # as after a change of the checkpoint's shape
    (verdict,) = compare(known, program(apply), "g")
    assert "rewind" not in verdict.fix


def test_a_fingerprint_is_that_of_one_change_of_one_state():
    known = known_of(program(fold("one")))
    two, three = program(fold("two")), program(fold("three"))

    def of(known, plan):
        return fingerprint(known, compare(known, plan, "g"))

    assert of(known, two) == of(known_of(program(fold("one"))), program(fold("two")))
    assert len({of(known, two), of(known, three), of(known_of(two), three)}) == 3


def test_only_another_number_of_key_changes_needs_a_reshape():
    flat, nested = program(apply), program(lambda sdf: by("user", apply)(apply(sdf)))

    assert not needs_reshape(known_of(flat), program(apply, fold("sum")))
    assert needs_reshape(known_of(flat), nested)
    assert needs_reshape(known_of(nested), flat)
    assert said(compare(known_of(flat), nested, "g")) == {
        "in/default": "reshape",
        "in/user/default": "new",
    }


def test_a_checkpoint_with_offsets_of_a_source_of_sparks_own_is_not_reshaped(tmp_path):
    def program(nested):
        app = Application(state_dir=tmp_path, topics_dir=tmp_path, loglevel=None)
        sdf = apply(
            app.dataframe(source=SparkSource(SimpleNamespace(isStreaming=True), name="rows"))
        )
        return make_plan((by("user", apply)(sdf) if nested else sdf)._graph)

    known = known_of(program(nested=False))

    check(known, program(nested=False), "g")
    with pytest.raises(StateError, match=r"1 change\(s\) of key, and this one has 2(.|\n)*Fix:"):
        check(known, program(nested=True), "g", accept=True)


def test_aggregations_of_other_fields_are_refused_and_can_be_accepted():
    known = known_of(program(agg("totals", spent=Sum("amount"))))

    verdicts = compare(known, program(agg("totals", most=Max("amount"))), "g", accept=True)

    assert said(verdicts)["in/totals"] != "refuse"


def test_a_removed_aggregation_needs_acceptance_and_then_names_what_it_drops():
    known = Manifest(8, 1)
    spent = program(agg("totals", n=Count(), spent=Sum("a")))
    known.say(claims_of(spent, known.claims()), None)
    changed = program(agg("totals", n=Count(), most=Max("a")))

    (refused,) = compare(known, changed, "g")
    (accepted,) = compare(known, changed, "g", accept=True)

    assert (refused.says, refused.can_accept) == ("refuse", True)
    assert "spent was Sum(a)" in refused.why
    assert (accepted.says, accepted.why) == ("migrate", "drops spent; most starts empty beside n")
