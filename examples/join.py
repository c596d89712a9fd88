"""Join: match each order with its payments, from 5 minutes before the order to 15 minutes after it.

Orders and payments without a partner go to the sink "unmatched" once no partner can arrive.

    {"order": "o-1", "at": "2026-03-01T12:00:05Z", "customer": "ann", "price": 500}   first file
    {"order": "o-1", "at": "2026-03-01T12:03:00Z", "amount": 200}                     second file

    driftline run examples/join.py --input orders.jsonl --input payments.jsonl --output out
"""

from typing import TypedDict

from driftline import Flow


class Order(TypedDict):
    """A customer's order; the price is in cents."""

    order: str
    at: str
    customer: str
    price: int


class Payment(TypedDict):
    """A full or partial payment for an order; the amount is in cents."""

    order: str
    at: str
    amount: int


flow = Flow("join")
orders = flow.source("orders", of=Order, event_time="at", max_delay="30s")
payments = flow.source("payments", of=Payment, event_time="at", max_delay="30s")
pairs = orders.join(payments, on="order", within=("-5m", "15m"), how="outer")
paid, alone = pairs.split(lambda pair: None not in pair)
paid.map(lambda pair: {**pair[0], "paid": pair[1]["amount"]}).sink("paid")
alone.map(lambda pair: pair[0] or pair[1]).sink("unmatched")
