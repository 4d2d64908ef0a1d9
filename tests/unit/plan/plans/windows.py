from datetime import timedelta

from millpond import Count, Sum


def program(app):
    sdf = app.dataframe(app.topic("orders")).watermark(timedelta(seconds=5), on="at")
    window = sdf.group_by("customer").hopping_window(60_000, 10_000, grace_ms=2_000)
    totals = window.agg(n=Count(), amount=Sum("amount"))
    totals.final().tumbling_count_window(3).max().current()
    totals.late().to_topic(app.topic("late"))
    sdf.drop_duplicates("id", within=60_000).group_by("country").agg(n=Count(), emit="batch")
