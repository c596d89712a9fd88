"""Cases of a comparison, each a row of a table: the floor, the policies, and Spark.

The *ends* of a case, its input and its output, are in memory or durable. In memory: a crash
would lose documents, as nothing stores them, and an output has arrived once it is decoded. Durable:
a document is on disk before its outputs leave, and an output has arrived once it is on disk. Only
cases with the same ends are compared; the durability of the nodes' state follows from the policy.

Spark checkpoints every batch, so its case has no snapshot interval.

    >>> [str(case) for case in cases(["exactly-once"], [50, 500])]
    ['floor', 'exactly-once, snapshot every 50 ms', 'exactly-once, snapshot every 500 ms']
"""

from collections.abc import Sequence

from msgspec import Struct

from driftline.engine.policy import POLICIES, SnapshotCut

FLOOR = "floor"
"""Name of the case without an engine."""

BASELINE = "none"
"""Driftline without guarantees. Tables compare each policy with it, and with the floor."""

MICRO_BATCH = "micro-batch"
"""The same flow on Spark."""

CHOICES = (*POLICIES, MICRO_BATCH)
"""Values of the option --policies."""

CUTS_WITHOUT_INTERVAL = (SnapshotCut.NONE, SnapshotCut.PRODUCTIONS)
"""Cuts of policies whose cases do not vary the snapshot interval: no snapshots, or productions,
which a node writes one after the other."""


class Case(Struct, frozen=True):
    """A policy, its snapshot interval (None: not varied), and whether its ends are durable."""

    policy: str
    snapshot_interval_ms: int | None
    durable: bool = False

    def __str__(self) -> str:
        interval = self.snapshot_interval_ms
        snapshots = "" if interval is None else f", snapshot every {interval} ms"
        return self.policy + snapshots + (", durable ends" if self.durable else "")

    @property
    def is_floor(self) -> bool:
        """Whether the case is the floor (`bench.systems.floor`): the job without an engine."""
        return self.policy == FLOOR

    @property
    def is_micro_batch(self) -> bool:
        """Whether the case runs on Spark."""
        return self.policy == MICRO_BATCH

    @property
    def durable_parts(self) -> list[str]:
        """The parts ("inputs", "state", "outputs") that survive a crash of all processes."""
        policy = POLICIES.get(self.policy)
        saves_state = policy.cut is not SnapshotCut.NONE if policy else self.is_micro_batch
        parts = {"inputs": self.durable, "state": saves_state, "outputs": self.durable}
        return [name for name, survives in parts.items() if survives]


def cases(
    policies: Sequence[str],
    snapshot_intervals_ms: Sequence[int],
    durable_interval_ms: int | None = None,
) -> list[Case]:
    """Return the floor, policies without an interval, other policies per interval, then Spark.

    `durable_interval_ms`: if not None, add all cases except Spark again, with durable ends and only
    this snapshot interval.
    """
    names = [name for name in policies if name in POLICIES]
    without_interval = [name for name in names if POLICIES[name].cut in CUTS_WITHOUT_INTERVAL]
    with_interval = [name for name in names if name not in without_interval]

    def cases_with_ends(intervals_ms: Sequence[int], durable: bool) -> list[Case]:
        return [
            Case(FLOOR, None, durable),
            *(Case(name, None, durable) for name in without_interval),
            *(Case(name, ms, durable) for ms in intervals_ms for name in with_interval),
        ]

    durable_cases: list[Case] = []
    if durable_interval_ms is not None:
        durable_cases = cases_with_ends([durable_interval_ms], durable=True)
    return [
        *cases_with_ends(snapshot_intervals_ms, durable=False),
        *([Case(MICRO_BATCH, None)] if MICRO_BATCH in policies else []),
        *durable_cases,
    ]
