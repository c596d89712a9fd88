"""Test helpers: barriers of each kind, and functions that add outputs and read bundles."""

from driftline.barrier.barrier import NO_T_LAST, Barrier
from driftline.barrier.ordered import OrderedBarrier
from driftline.barrier.unordered import EpochBarrier, ProductionBarrier
from driftline.engine.labels import Label
from driftline.engine.wire.bundles import Item, from_blob
from driftline.engine.wire.messages import Bundle

GROUPS = (0, 63)

Output = tuple[Label, int, object, int]
"""(label, sink, payload, sign)."""


def ordered(**options: int) -> OrderedBarrier:
    return OrderedBarrier("barrier-0", GROUPS, **options)  # type: ignore[arg-type]


def epochs() -> EpochBarrier:
    return EpochBarrier("barrier-0", GROUPS)


def productions() -> ProductionBarrier:
    return ProductionBarrier("barrier-0", GROUPS)


def connected(barrier: Barrier) -> Barrier:
    barrier.handle_last_bundle(NO_T_LAST, 0, ())
    return barrier


def hold(barrier: Barrier, *outputs: Output) -> None:
    for label, sink, value, sign in outputs:
        barrier.add_outputs(sink, [label], [value], None if sign > 0 else [sign])


def taken(barrier: Barrier) -> Bundle:
    """Return the next bundle; fail if there is none."""
    bundle = barrier.take_bundle(1)
    assert bundle is not None
    return bundle


def items(bundle: Bundle | None) -> list[Item]:
    assert bundle is not None
    return [item for blob in bundle.blobs for item in from_blob(blob)]


def values(bundle: Bundle | None) -> list[object]:
    return [item.value for item in items(bundle)]
