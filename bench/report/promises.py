"""Promises: losses and duplicates that a row excludes, but that happened.

Every run counts: a median would hide the one that broke the promise. The floor promises all that
its sockets do: if it loses a record, the measurement is broken.
"""

from collections.abc import Iterable

from driftline.bench.report.rows import Row
from driftline.engine.policy import POLICIES, Output


def broken_promises(rows: Iterable[Row]) -> list[str]:
    """A sentence for each row that lost or duplicated records against the promise of its policy."""
    sentences = []
    for row in rows:
        policy = POLICIES.get(row.case.policy)  # the floor and micro-batches promise both
        if row.lost and (policy is None or policy.replay):
            sentences.append(f"{row.case} has lost {row.lost} records")
        if row.duplicated and (policy is None or policy.output is not Output.AT_ONCE):
            sentences.append(f"{row.case} has delivered {row.duplicated} records twice")
    return sentences
