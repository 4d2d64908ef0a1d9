"""Fails at three random moments, is restarted each time, and adds every integer once.

Each restart makes a new application on the same state directory, as a new process would.

Prints:

    failed 3 times
    1000 sums written, the last is 499500
"""

import random
import tempfile

import millpond as mp
from millpond.errors import StepError

COUNT = 1000
folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
unlucky = sorted(random.sample(range(COUNT), 3))


def add(key, value, total):
    return total + value, total + value


def build(fail_at: int | None) -> tuple[mp.Application, mp.Topic]:
    app = mp.Application(
        consumer_group="keeps-failing",
        state_dir=f"{folder.name}/state",
        topics_dir=f"{folder.name}/topics",
        max_records_per_batch=100,
        loglevel="WARNING",
    )

    def fail(value):
        if value == fail_at:
            raise RuntimeError("oh no!")

    sums = app.topic("sums")
    numbers = app.dataframe(source=mp.ListSource(range(COUNT), name="numbers"))
    numbers.stateful_map("sum", add, initial=0).to_topic(sums)
    numbers.update(fail)
    return app, sums


failures = 0
while True:
    app, sums = build(fail_at=unlucky[failures] if failures < 3 else None)
    try:
        app.run()
        break
    except StepError:
        failures += 1  # nothing of that batch was committed: restart

records = list(app.get_consumer().read(sums))
print(f"failed {failures} times")
print(f"{len(records)} sums written, the last is {records[-1].value}")
