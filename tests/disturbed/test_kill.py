"""A program killed at random moments, again and again, gives what an undisturbed one gives.

`make test` kills it once; `make soak` sets MILLPOND_KILLS to 25.
"""

from __future__ import annotations

import pytest

from disturbed import KILLS, Run, assert_equal

pytestmark = pytest.mark.spark


def test_killed_at_random_moments_every_record_counts_exactly_once(spark, tmp_path):
    undisturbed = Run(tmp_path / "undisturbed").undisturbed(spark)
    killed = Run(tmp_path / "killed")

    assert killed.killed(KILLS) == KILLS

    assert_equal(killed, undisturbed, spark)
