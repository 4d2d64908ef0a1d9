"""Visits to a site: page views of one visitor with no pause of more than half an hour.

Ann's view of 10:20 comes last. It lies between two sessions of hers and makes them one.

Prints:

    ann since 10:00, last seen 10:00, views 1
    ann since 10:00, last seen 10:05, views 2
    ann since 10:45, last seen 10:45, views 1
    bob since 12:00, last seen 12:00, views 1
    ann since 10:00, last seen 10:45, views 4
    over: ann since 10:00, last seen 10:45, views 4
    over: bob since 12:00, last seen 12:00, views 1
"""

from datetime import UTC, datetime, timedelta

import millpond as mp

VIEWS = [
    {"visitor": "ann", "at": datetime(2024, 5, 1, 10, 0, tzinfo=UTC)},
    {"visitor": "ann", "at": datetime(2024, 5, 1, 10, 5, tzinfo=UTC)},
    {"visitor": "ann", "at": datetime(2024, 5, 1, 10, 45, tzinfo=UTC)},
    {"visitor": "bob", "at": datetime(2024, 5, 1, 12, 0, tzinfo=UTC)},
    {"visitor": "ann", "at": datetime(2024, 5, 1, 10, 20, tzinfo=UTC)},
]


def summary(session: dict, visitor: str, timestamp: int, headers: list | None) -> str:
    start, end = (datetime.fromtimestamp(session[name] / 1000, UTC) for name in ("start", "end"))
    return f"{visitor} since {start:%H:%M}, last seen {end:%H:%M}, views {session['views']}"


app = mp.Application(consumer_group="sessions", persistence="none", loglevel="WARNING")

# The time of a view is in its value, and a view may come two hours late. Nothing follows the last
# one, so the wall clock takes over after a second; else the last sessions would stay open.
views = app.dataframe(source=VIEWS).watermark(
    timedelta(hours=2), on="at", idle_after=timedelta(seconds=1)
)
by_visitor = views.group_by("visitor")

so_far = by_visitor.session_window(timedelta(minutes=30), name="so-far").agg(views=mp.Count())
so_far.current().apply(summary, metadata=True).print()

whole = by_visitor.session_window(timedelta(minutes=30), name="whole").agg(views=mp.Count())
whole.final().apply(summary, metadata=True).apply("over: {}".format).print()

app.run()
