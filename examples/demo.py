"""The demo of `make demo`: payments come in, balances per account are kept, suspicious ones alert.

Shows live progress while it runs and the state at the end. Everything lies in a temporary
folder; nothing is left behind.
"""

import random
import tempfile

from rich.console import Console
from rich.table import Table

import millpond as mp

ACCOUNTS, PAYMENTS = 2_000, 300_000


def book(payment: dict, state: mp.State) -> dict:
    """One payment on one account: the new balance, and how many payments it has had."""
    balance = state.get("balance", 0) + payment["amount"]
    count = state.get("payments", 0) + 1
    state.set("balance", balance)
    state.set("payments", count)
    return {**payment, "balance": balance, "payments": count}


def main() -> None:
    console = Console()
    numbers = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="millpond-demo-") as folder:
        app = mp.Application(
            consumer_group="demo",
            state_dir=f"{folder}/state",
            topics_dir=f"{folder}/topics",
            auto_offset_reset="earliest",
            max_records_per_batch=30_000,
        )
        payments, balances, alerts = (
            app.topic("payments"),
            app.topic("balances"),
            app.topic("alerts"),
        )

        booked = app.dataframe(payments).apply(book, stateful=True)
        booked.to_topic(balances)
        booked[booked["balance"] < -2_000].to_topic(alerts)

        console.print(
            f"Writing {PAYMENTS:,} payments on {ACCOUNTS:,} accounts to the embedded log ..."
        )
        with app.get_producer() as producer:
            for _ in range(PAYMENTS):
                account = f"account-{numbers.randrange(ACCOUNTS)}"
                producer.produce(
                    payments, key=account, value={"amount": numbers.randint(-100, 100)}
                )

        console.print("\nWhat will run:\n\n" + app.explain(), highlight=False, soft_wrap=True)
        app.run(drain=True, collect=False)

        items = list(app.scan_state())
        counts = {item.key: item.value for item in items if item.name == "payments"}
        totals = {item.key: item.value for item in items if item.name == "balance"}
        table = Table(
            "account", "balance", "payments", title="The state at the end: lowest balances"
        )
        for account in sorted(totals, key=totals.__getitem__)[:5]:
            table.add_row(account.decode(), f"{totals[account]:,}", str(counts[account]))
        console.print(table)
        alert_count = sum(1 for _ in app.get_consumer().read(alerts))
        console.print(
            f"{len(totals):,} accounts in state, {sum(counts.values()):,} payments counted,"
        )
        console.print(f"{alert_count:,} alerts written.")
        assert sum(counts.values()) == PAYMENTS


if __name__ == "__main__":
    main()
