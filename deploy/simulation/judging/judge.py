"""Judges what the consumer of a simulated run holds.

For exactly-once the items that the consumer holds, per barrier, must be the sequence that the
reference interpreter gives, restricted to the labels of that barrier: nothing lost, nothing
twice, nothing in another order, no item that the reference does not have (Delivery, consistency,
and determinism, Definition 6, with equality). Where there is no order, what no order changes is
compared.
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
    found: Mapping[str, Sequence[Item]],
    value: Callable[[Item], object],
) -> str:
    """What is wrong with the items of each barrier; empty if nothing is.

    `view`: the part of an output that no order of arrival changes; `value`: an item's payload.
    """
    if policy.ordered:
        return _judge_sequence(expected, found)
    everything = [item for items in found.values() for item in items]
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


def _judge_sequence(expected: list[Item], found: Mapping[str, Sequence[Item]]) -> str:
    for barrier, items in found.items():
        labels = [item.label for item in items]
        if labels != sorted(labels):
            return f"{barrier} delivered out of order"
    merged = sorted((i for items in found.values() for i in items), key=lambda item: item.label)
    ordered = sorted(expected, key=lambda item: item.label)
    for want, got in zip(ordered, merged, strict=False):
        if (want.label, want.sink, pack(want.value)) != (got.label, got.sink, pack(got.value)):
            return f"expected {want}, found {got}"
    if len(merged) != len(ordered):
        return f"{len(merged)} items instead of {len(ordered)}"
    return ""
