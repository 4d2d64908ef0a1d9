"""Clicks of a web shop, batch by batch: totals and sessions that late clicks still change.

User B's click of 09:59:30 comes in batch 2, after later ones, and the one of 09:45:00 in batch
10. Both count, and both belong to the session that B's other clicks are in.

Prints:

    batch 1: user_A 2, user_B 1, user_C 1
    batch 2: user_A 3, user_B 2, user_C 1, user_D 1
    batch 9: user_A 5, user_B 3, user_C 2, user_D 1
    batch 10: user_A 6, user_B 4, user_C 2, user_D 1, user_E 1
    user_A: 6 clicks from 10:00:00 to 10:03:00
    user_B: 4 clicks from 09:45:00 to 10:03:15
    user_C: 2 clicks from 10:00:45 to 10:03:30
    user_D: 1 clicks from 10:01:15 to 10:01:15
    user_E: 1 clicks from 10:08:00 to 10:08:00
"""

import tempfile
from datetime import UTC, datetime, timedelta

import millpond as mp

BATCHES = {
    1: "A 10:00:00, B 10:00:15, A 10:00:30, C 10:00:45",
    2: "A 10:01:00, D 10:01:15, B 09:59:30",
    9: "A 10:02:30, A 10:03:00, B 10:03:15, C 10:03:30",
    10: "B 09:45:00, A 10:02:00, E 10:08:00",
}
folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
app = mp.Application(
    consumer_group="clicks",
    state_dir=f"{folder.name}/state",
    topics_dir=f"{folder.name}/topics",
    auto_offset_reset="earliest",
    loglevel="WARNING",
)
# After two seconds without a click the wall clock takes over: half an hour is over, sessions end.
clicks = app.topic("clicks", idle_after=timedelta(seconds=2))
totals, sessions = {}, {}

by_user = app.dataframe(clicks).group_by("user_id")
by_user.agg(clicks=mp.Count(), emit="batch").sink(
    lambda records, _: totals.update({r.key: r.value["clicks"] for r in records}), name="totals"
)
by_user.session_window(timedelta(minutes=30)).agg(clicks=mp.Count()).final().sink(
    lambda records, _: sessions.update({r.key: r.value for r in records}), name="sessions"
)

for number, batch in BATCHES.items():
    with app.get_producer() as producer:
        for user, time in (click.split() for click in batch.split(", ")):
            at = datetime.fromisoformat(f"2024-05-01T{time}+00:00").timestamp()
            producer.produce(clicks, value={"user_id": f"user_{user}"}, timestamp=int(at * 1000))
    app.run(drain=True)
    print(f"batch {number}:", ", ".join(f"{user} {n}" for user, n in sorted(totals.items())))

app.run(count=len(totals), timeout=30)  # until every session has come out
for user, session in sorted(sessions.items()):
    start, end = (datetime.fromtimestamp(session[name] / 1000, UTC) for name in ("start", "end"))
    print(f"{user}: {session['clicks']} clicks from {start:%H:%M:%S} to {end:%H:%M:%S}")
