"""State directories of earlier releases open, go on, and come to what they would have come to."""

from __future__ import annotations

from pathlib import Path

import pytest
from old_state import BATCH, BEFORE, GROUP, opened, produce, program

from millpond import admin
from millpond.storage.manifest import FORMAT

pytestmark = pytest.mark.spark

ARCHIVES = sorted((Path(__file__).parent / "old-state").glob("*.tar.xz"))

MORE, LATER_MS = range(BEFORE, BEFORE + 20, 5), 100_000  # all of user-0


@pytest.fixture(params=ARCHIVES, ids=lambda archive: archive.name.removesuffix(".tar.xz"))
def app(request, spark, tmp_path):
    opened(request.param, tmp_path)
    return program(tmp_path, spark=spark)


def written(app, topic):
    with app.get_consumer() as consumer:
        return [(record.key, record.value) for record in consumer.read(topic)]


def of_users(app, topic, users):
    found = written(app, topic)
    return {user: [value for key, value in found if key == user.encode()] for user in users}


def test_there_is_an_archive_for_each_format_of_the_manifest():
    names = {archive.name for archive in ARCHIVES}

    assert names >= {"0.1.0.tar.xz", f"format-{FORMAT}.tar.xz"}


def test_state_of_an_earlier_release_is_read_at_each_batch(app):
    with admin.open(app) as state:
        assert state.verify().problems == []
        assert state.info().group == GROUP
        for batch in (0, 1):
            done = BATCH * (batch + 1)
            for user in range(5):
                found = state.get(f"user-{user}", store="payments/default", at=batch)
                assert found == {"n": done // 5, "last": done - 5 + user}
                totals = state.get(f"user-{user}", store="payments/agg", at=batch)
                assert totals == {"n": done // 5, "most": done - 5 + user}
            assert state.get("odd", store="payments/kind", at=batch) == {"n": done // 2}
        timers = {timer.key: timer.at for timer in state.timers() if timer.name == "quiet"}
        assert timers == {f"user-{n}": (35 + n) * 1_000 + 60_000 for n in range(5)}


def test_a_program_goes_on_with_the_state_of_an_earlier_release(app):
    produce(app, MORE, LATER_MS)
    app.run(drain=True)

    users = [f"user-{n}" for n in range(5)]
    counts = of_users(app, "counts", users)
    for user in users:
        more = range(9, 13) if user == "user-0" else ()
        fired = {"quiet": 8}  # the timer that the release has set
        assert counts[user] == [
            *({"n": n} for n in range(1, 9)), fired, *({"n": n} for n in more),
        ]  # fmt: skip
    windows = of_users(app, "windows", users)
    for number, user in enumerate(users):
        expected = [
            {"n": 2, "total": 2 * (begin + number) + 5, "start": begin * 1_000}
            for begin in (0, 10, 20, 30)  # the last one was open in the release
        ]
        if number == 0:
            expected.append({"n": 2, "total": 40 + 45, "start": 140_000})
        assert windows[user] == [{**w, "end": w["start"] + 10_000} for w in expected]
    totals = of_users(app, "totals", users)
    assert totals["user-0"][8:] == [{"n": n, "most": 5 * (n - 1)} for n in range(9, 13)]
    assert written(app, "kinds")[BEFORE:] == [
        (b"even", {"n": 21}),
        (b"odd", {"n": 21}),
        (b"even", {"n": 22}),
        (b"odd", {"n": 22}),
    ]
    with admin.open(app) as state:
        assert state.get("user-0", store="payments/default") == {"n": 12, "last": 55}
        assert state.get("user-4", store="payments/default") == {"n": 8, "last": 39}
        assert state.get("user-0", store="payments/default", at=0) == {"n": 4, "last": 15}
        assert {timer.key for timer in state.timers() if timer.name == "quiet"} == {"user-0"}
        assert state.verify().problems == []
