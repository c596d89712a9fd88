"""Fraud detection: a small payment tests a card, and a large one follows within a minute.

Amounts are in cents. Several small payments before a large one cause only one alert.

    {"card": "c-1", "at": 1700000000, "amount": 100}

    driftline run examples/fraud.py --input payments.jsonl --output out
"""

from typing import TypedDict

from driftline import Flow

SMALL, LARGE = 200, 50_000


class Payment(TypedDict):
    """A payment with a card; `at` is in seconds."""

    card: str
    at: int
    amount: int


flow = Flow("fraud")
payments = flow.source("payments", of=Payment, event_time="at", max_delay="10s")
small = payments.filter(lambda payment: payment["amount"] <= SMALL, name="small")
large = payments.filter(lambda payment: payment["amount"] >= LARGE, name="large")
pairs = small.join(large, on="card", within=("0s", "1m"))
alerts = pairs.map(lambda pair: pair[1]).key_by("card", "at", "amount").distinct(ttl="1m")
alerts.sink("alerts")
