"""What a person sees while an application runs, where there is no terminal."""

import logging

from millpond.progress import Meter
from millpond.runtime.gather import BatchReport


def later(meter):
    meter._logged -= 60  # as if a minute had passed
    meter.refresh()


def test_a_long_first_batch_is_told_of(caplog):
    caplog.set_level(logging.INFO)
    with Meter("shop", {}) as meter:
        later(meter)
        meter.started()
        meter.lag(5_000)
        later(meter)
        report = BatchReport(0, keys={("t", 0): 3})
        report.stages[0].entered = 2_000
        meter.batch(report)
        later(meter)

    assert [message.replace("  ", " ") for message in caplog.messages] == [
        "group shop: starting Spark",
        "shop starting Spark",
        "group shop: running",
        "shop running · first batch · lag 5,000",
        "shop running · 2,000 records · 2,000,000/s · batch 0 · 3 keys in state · lag 3,000",
        "shop stopped · 2,000 records · 2,000,000/s · batch 0 · 3 keys in state · lag 3,000",
    ]
