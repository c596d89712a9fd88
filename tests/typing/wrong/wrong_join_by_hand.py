"""Wrong uses of join_by_hand.py: a union of two types, and two states."""

from driftline import Flow, ListState, ValueState
from tests.typing.right.join_by_hand import Order, Payment, match, tag_order, tag_payment

flow = Flow("wrong join")
orders = flow.source("orders", of=Order)
payments = flow.source("payments", of=Payment)
customer, early = ValueState[str]("customer"), ListState[int]("early")

# Elements of the wrong type.
orders.map(tag_payment)  # error: arg-type
both = orders.map(tag_order).union(payments.map(tag_payment))
orders.union(payments).key_by("order").process(match, customer, early)  # error: arg-type, call-arg

# One of two states.
by_order = both.key_by(lambda element: element[1]["order"])
by_order.process(match, customer)  # error: arg-type

# Another type of value in the second.
by_order.process(match, customer, ListState[str]("early"))  # error: arg-type, call-arg

# The key of one type only.
both.key_by(lambda element: element[1]["customer"])  # error: typeddict-item

# A stream that has its key already.
orders.union(payments.key_by("order"))  # error: arg-type
