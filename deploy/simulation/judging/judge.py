"""Judges the outputs of a simulated run.

For exactly-once the items of each barrier must be the sequence that the reference interpreter
gives, restricted to the labels of that barrier: no item is lost, duplicated, out of order, or
absent from the reference (Delivery, consistency, and determinism, Definition 6, with equality).
Under policies without an order, only the properties that every order has in common are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from driftline.engine.policy import Output, Policy, SnapshotCut
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import pack

View = Callable[[object], object]


def judge(
    policy: Policy,
    view: View | None,
    expected: list[Item],
    delivered: Mapping[str, Sequence[Item]],
    value: Callable[[Item], object],
) -> str:
    """Compare the delivered items, per barrier, with the expected ones.

    `view`: maps a payload to its part that no order of arrival changes; None: labels only.
    `value`: maps an item to its payload.

    Returns the first problem as a sentence; "" if there is none.
    """
    if policy.ordered:
        return _judge_sequence(expected, delivered)
    everything = [item for items in delivered.values() for item in items]
    wanted, got = (Counter(item.label for item in items) for items in (expected, everything))
    lost, extra = (wanted - got).total(), (got - wanted).total()
    if policy.output is Output.AT_ONCE and policy.cut is not SnapshotCut.NONE:
        return f"lost {lost} items" if lost else ""  # at least once
    if lost or extra:
        return f"lost {lost} items, {extra} too many"
    if view is not None:
        wanted_views, views = (
            Counter(pack(view(value(item))) for item in items) for items in (expected, everything)
        )
        if wanted_views != views:
            return "other items than the reference has"
    return ""


def _judge_sequence(expected: list[Item], delivered: Mapping[str, Sequence[Item]]) -> str:
    for barrier, items in delivered.items():
        labels = [item.label for item in items]
        if labels != sorted(labels):
            return f"{barrier} delivered out of order"
    merged = sorted((i for items in delivered.values() for i in items), key=lambda item: item.label)
    ordered = sorted(expected, key=lambda item: item.label)
    for want, got in zip(ordered, merged, strict=False):
        if (want.label, want.sink, pack(want.value)) != (got.label, got.sink, pack(got.value)):
            return f"expected {want}, found {got}"
    if len(merged) != len(ordered):
        return f"{len(merged)} items instead of {len(ordered)}"
    return ""
