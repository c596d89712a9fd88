"""Wrong uses of fraud_by_hand.py: two states of different classes."""

import operator

from driftline import Flow, ReducingState, ValueState
from tests.typing.right.fraud_by_hand import Payment, suspicious

flow = Flow("wrong fraud")
payments = flow.source("payments", of=Payment)
by_card = payments.key_by(lambda payment: payment["card"])
tried_at, alerts = ValueState[int]("tried-at"), ReducingState[int]("alerts", operator.add)

# In the wrong order, one missing.
by_card.process(suspicious, alerts, tried_at)  # error: arg-type, call-arg
by_card.process(suspicious, tried_at)  # error: arg-type

# The second of another class.
by_card.process(suspicious, tried_at, ValueState[int]("alerts"))  # error: arg-type, call-arg

# A misspelt field.
payments.key_by(lambda payment: payment["cards"])  # error: typeddict-item

# One output where any number is meant.
payments.flat_map(lambda payment: payment["amount"])  # error: arg-type, return-value

# A lambda that does with a state what the state cannot do.
by_card.scan(lambda payment, alerts: alerts.append(1), alerts)  # error: attr-defined
by_card.scan(lambda payment, tried_at: tried_at.get() + 1, tried_at)  # error: operator
