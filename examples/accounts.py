"""Balances that are right although transactions come late, out of order, and twice.

Totals without a window take a late record like any other. A transaction that was sent again is
known by its id and dropped, whichever account it names.

Prints:

    account_456: balance 1250.50, 8 transactions, last at 10:14:22
    account_789: balance -20.00, 1 transactions, last at 10:09:00
    sent 11 times, counted 9
"""

from decimal import Decimal

import millpond as mp

TRANSACTIONS = [
    ("t1", "account_456", "1000.00", "10:00:05"),
    ("t2", "account_456", "-49.50", "10:02:10"),
    ("t5", "account_456", "-200.00", "10:08:41"),
    ("t8", "account_456", "-0.01", "10:14:22"),
    ("t3", "account_456", "0.01", "10:03:33"),  # late
    ("t9", "account_789", "-20.00", "10:09:00"),
    ("t5", "account_456", "-200.00", "10:08:41"),  # again
    ("t4", "account_456", "500.00", "10:05:00"),  # late
    ("t7", "account_456", "12.25", "10:11:59"),
    ("t6", "account_456", "-12.25", "10:10:02"),
    ("t1", "account_456", "1000.00", "10:00:05"),  # again
]
FIELDS = ("id", "account", "amount", "at")

app = mp.Application(consumer_group="accounts", persistence="none", loglevel="WARNING")
sent = app.dataframe(source=[dict(zip(FIELDS, row, strict=True)) for row in TRANSACTIONS])
sent["amount"] = sent["amount"].apply(Decimal)  # sums of Decimals are exact Decimals
sent.drop_duplicates(on="id").group_by("account").agg(
    account=mp.Last("account"),
    balance=mp.Sum("amount"),
    transactions=mp.Count(),
    last=mp.Max("at"),
)

counted = app.run()  # the totals after each transaction

for total in {total["account"]: total for total in counted}.values():  # the last ones
    balance = f"balance {total['balance']}, {total['transactions']} transactions"
    print(f"{total['account']}: {balance}, last at {total['last']}")
print(f"sent {len(TRANSACTIONS)} times, counted {len(counted)}")
