"""Wrong uses of enrichment_by_hand.py: a union of two sources, told apart by a field."""

from driftline import Context, Flow, MapState, ValueState
from tests.typing.right.enrichment_by_hand import Order, Priced, Product, Row, enrich

flow = Flow("wrong enrichment")
products = flow.source("products", of=Product)
orders = flow.source("orders", of=Order)
records = products.union(orders)

# The states of the operator: another class, one too many.
records.key_by("product").process(enrich, MapState[str, Row]("row"))  # error: arg-type
row, more = ValueState[Row]("row"), ValueState[int]("orders")
records.key_by("product").process(enrich, row, more)  # error: arg-type, call-arg


# Only one of the types of a union.
def cost(order: Order) -> int:
    return order["pieces"]


records.map(cost)  # error: arg-type
records.map(lambda record: record["pieces"])  # error: typeddict-item


# What the operator makes has a type, too.
def cents(priced: tuple[str, str, int]) -> int:
    return priced[2]


records.key_by("product").process(enrich, row).map(cents)  # error: arg-type


# What a state has may be nothing, and is of its type.
def keep(context: Context, order: Order, row: ValueState[Row]) -> list[Priced]:
    row.set(order["product"])  # error: arg-type
    name, price = row.get()  # error: misc
    return [(order["product"], name, price)]
