"""Wrong uses of topk_by_hand.py: two keyed operators, one after the other."""

import operator

from driftline import Flow, MapState, ReducingState, ValueState
from tests.typing.right.topk_by_hand import Sale, add, rank

flow = Flow("wrong top k")
sales = flow.source("sales", of=Sale)
totals = sales.key_by("product").scan(add, ReducingState[int]("total", operator.add))

# The elements of another operator.
sales.key_by("product").process(rank, MapState[str, int]("best"))  # error: arg-type
totals.key_by(0).scan(add, ReducingState[int]("total", operator.add))  # error: arg-type

# Another type of key in a map.
totals.key_by(0).process(rank, MapState[int, int]("best"))  # error: arg-type

# A state without the function that it folds by.
sales.key_by("product").scan(add, ValueState[int]("total"))  # error: arg-type
ReducingState[int]("total")  # error: call-arg

# A key of what is not there.
totals.key_by(lambda sold: sold[2])  # error: misc
totals.key_by(1.5)  # error: call-overload

# What goes before key_by, or after a keyed operator.
totals.key_by(0).filter(len)  # error: attr-defined
