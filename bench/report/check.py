"""The check of a benchmark: in every run each document has one output for each of its words.

Nothing is killed in these benchmarks, so this is no test of guarantees, and no policy excuses an
output that is lost or comes twice: then the measurement is broken. Every run counts, as a median
would hide the broken one.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from driftline.bench.report.rows import Row
from driftline.engine.counted import counted

ALL_RIGHT = (
    "Checked: in every run each document had one output for each of its words, none lost and none "
    "twice. Nothing is killed here."
)


class Counted(Protocol):
    """Something that has counted outputs."""

    @property
    def lost(self) -> int: ...

    @property
    def duplicated(self) -> int: ...


def check(rows: Sequence[Row]) -> str:
    """The note below a table: what was checked. "" if a row is wrong, or nothing was run."""
    return ALL_RIGHT if any(row.runs for row in rows) and not wrong_rows(rows) else ""


def wrong_rows(rows: Iterable[Row]) -> list[str]:
    """A sentence for each row with an output that is lost or came twice."""
    return wrong((str(row.case), row) for row in rows)


def wrong(named: Iterable[tuple[str, Counted]]) -> list[str]:
    """The same of anything that has a name."""
    return [
        f"{name}: {counted(row.lost, 'output')} {'is' if row.lost == 1 else 'are'} lost and "
        f"{row.duplicated} came twice, though nothing was killed; do not use its figures"
        for name, row in named
        if row.lost or row.duplicated
    ]
