"""A source in memory, for tests of flows; it may hold bad records.

>>> list(ListSource(["a", "b"], first=7).read(1))
[(7, 'a'), (8, 'b')]
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple

from driftline.engine.sources.source import BadRecord
from driftline.engine.wire.codec import pack


class ListSource:
    """The records of a sequence at the times `first`, `first` + 1, ...

    Precondition: the time of a BadRecord among them is that of its place in the sequence. `name`:
    how errors call the source.
    """

    def __init__(self, records: Sequence[object], name: str = "memory", first: int = 1) -> None:
        for time, record in enumerate(records, first):
            assert not isinstance(record, BadRecord) or record.time == time, record
        self.name = name
        self._records = records
        self._first = first

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """All records with time >= `start`; skips the others in O(1)."""
        for i in range(max(0, start - self._first), len(self._records)):
            record = self._records[i]
            yield record if isinstance(record, BadRecord) else (self._first + i, record)

    def progress(self) -> tuple[int, int] | None:
        """None: there are no bytes."""
        return None

    def identity(self) -> str:
        """A hash of the records; costs encoding all of them."""
        content = hashlib.sha256()
        for record in self._records:
            content.update(pack(astuple(record) if isinstance(record, BadRecord) else record))
        return f"{self.name}, from {self._first}, {content.hexdigest()[:32]}"
