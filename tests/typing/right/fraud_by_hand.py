"""Alerts by two states of different classes."""

import operator
from collections.abc import Iterator
from typing import TypedDict

from driftline import Context, Flow, ReducingState, ValueState

SMALL, LARGE = 200, 50_000
WITHIN_S = 60


class Payment(TypedDict):
    """A payment with a card."""

    card: str
    at: int
    amount: int


def suspicious(
    context: Context, payment: Payment, tried_at: ValueState[int], alerts: ReducingState[int]
) -> Iterator[tuple[str, int, int]]:
    """Yield the card, the large amount, and the number of alerts for the card so far."""
    at, amount = payment["at"], payment["amount"]
    if amount <= SMALL:
        tried_at.set(at)
    elif amount >= LARGE:
        tried = tried_at.get()
        if tried is not None and 0 <= at - tried <= WITHIN_S:
            yield payment["card"], amount, alerts.add(1)


flow = Flow("fraud")
(
    flow.source("payments", of=Payment)
    .key_by(lambda payment: payment["card"])
    .process(
        suspicious,
        ValueState("tried-at"),
        ReducingState("alerts", operator.add),
        fields=("card", "amount", "alert"),
    )
    .sink("alerts")
)
