"""A change that was accepted takes effect at the next start, in whatever parts it is made."""

from __future__ import annotations

import pytest
from changing import COUNT

from millpond.cli.loading import load_application
from millpond.operations.fit import fit
from millpond.operations.session import Opened
from millpond.program.plan import make_plan

pytestmark = pytest.mark.spark

BOTH = 'clicks.agg(n=mp.Count(), most=mp.Max("n"))\n'
ONE = "clicks.agg(n=mp.Count())\n"
BY_WATERMARK = "clicks.tumbling_window(60_000).count().final()\n"
BY_KEY = "clicks.tumbling_window(60_000).count().final(closing_strategy='key')\n"
NESTED = "clicks.group_by('user').stateful_map('sum', fold)\n"

# Before, after, and what must be kept in the other stores when two records have followed three.
SEVERAL = {
    "a window starts empty and an aggregation goes": (
        COUNT + BY_WATERMARK + BOTH,
        COUNT + BY_KEY + ONE,
        {"clicks/tumbling_window_60000_count": 2},
    ),
    "a group_by comes and an aggregation goes": (
        COUNT + BOTH,
        COUNT + ONE + NESTED,
        {"clicks/user/sum": 2},
    ),
    "a group_by goes and an aggregation goes": (COUNT + BOTH + NESTED, COUNT + ONE, {}),
}


def fit_only(programs):
    """Fit the state and no more, as a run does that is killed before its first batch."""
    app = load_application(str(programs.folder / "APP.py"))
    opened = Opened(app, None, {})
    with opened.held("running") as hold:
        opened.hold = hold
        fit(opened, make_plan(app.graph), accept=False)


@pytest.mark.parametrize("change", SEVERAL)
def test_one_acceptance_is_enough_for_a_change_that_is_made_in_several_steps(
    programs, tmp_path, change
):
    before, after, others = SEVERAL[change]
    programs.write(before)
    programs.send(3)
    programs.run()
    programs.write(after)
    assert "would lose what it has aggregated" in programs.refusal() or others
    assert programs.does("check APP.py --accept").exit_code == 0
    killed = programs.copy(tmp_path / "killed")
    killed.write(after)
    fit_only(killed)
    killed.write(COUNT + "clicks.agg(n=mp.Count('n'))\n")  # that is another change
    assert "n was Count()" in killed.refusal()
    killed.write(after)

    for program in (programs, killed):
        program.send(2)
        program.run()

        kept = program.kept()
        assert kept["clicks/default"] == {"n": 5}
        assert kept["clicks/agg"] == {"n": 5}
        found = {name: str(kept[name]) for name in others}
        assert all(str(count) in found[name] for name, count in others.items()), found
        assert "refuse" not in program.verdicts().values()
