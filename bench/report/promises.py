"""Promises: losses and duplicates that a policy excludes, but that happened."""

from collections.abc import Iterable

from driftline.bench.report.tables import Row
from driftline.engine.policy import POLICIES, Output


def broken_promises(rows: Iterable[Row]) -> list[str]:
    """A sentence for each row that lost or duplicated records against the promise of its policy."""
    sentences = []
    for row in rows:
        policy = POLICIES.get(row.policy)  # micro-batches promise both
        if row.lost and (policy is None or policy.replay):
            sentences.append(f"{row.policy} has lost {row.lost} records")
        if row.duplicated and (policy is None or policy.output is not Output.AT_ONCE):
            sentences.append(f"{row.policy} has delivered {row.duplicated} records twice")
    return sentences
