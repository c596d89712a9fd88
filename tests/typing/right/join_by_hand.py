"""A join by states: a union of tagged types."""

from collections.abc import Iterator
from typing import Literal, TypedDict

from driftline import Context, Flow, ListState, ValueState


class Order(TypedDict):
    """A customer's order; the price is in cents."""

    order: str
    customer: str
    price: int


class Payment(TypedDict):
    """A full or partial payment for an order, in cents."""

    order: str
    amount: int


TaggedOrder = tuple[Literal["order"], Order]
TaggedPayment = tuple[Literal["payment"], Payment]


def tag_order(order: Order) -> TaggedOrder:
    """Tag an order."""
    return "order", order


def tag_payment(payment: Payment) -> TaggedPayment:
    """Tag a payment."""
    return "payment", payment


def match(
    context: Context,
    element: TaggedOrder | TaggedPayment,
    customer: ValueState[str],
    early: ListState[int],
) -> Iterator[tuple[str, str, int]]:
    """Yield (order, customer, amount) for each payment whose order has arrived."""
    if element[0] == "order":
        customer.set(element[1]["customer"])
    else:
        early.append(element[1]["amount"])
    known = customer.get()
    if known is not None:
        for amount in early:
            yield element[1]["order"], known, amount
        early.clear()


flow = Flow("join")
orders = flow.source("orders", of=Order).map(tag_order)
payments = flow.source("payments", of=Payment).map(tag_payment)
(
    orders.union(payments)
    .key_by(lambda element: element[1]["order"])
    .process(
        match, ValueState("customer"), ListState("early"), fields=("order", "customer", "paid")
    )
    .sink("paid")
)
