"""A source in memory, for tests of flows, and a source that repeats another one.

>>> list(ListSource(["a", "b"], first=7).read(1))
[(7, 'a'), (8, 'b')]
>>> list(Repeated(ListSource([{"id": "a"}, {"id": "b"}]), 3).read(1))
[(1, {'id': 'a'}), (2, {'id': 'b'}), (3, {'id': 'a~2'})]
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import count

from msgspec.structs import astuple, replace

from driftline.engine.sources.source import BadRecord, Source
from driftline.engine.wire.codec import pack


class ListSource:
    """Source of the records of a sequence, at the times `first`, `first` + 1, ...

    Precondition: the time of a BadRecord in the sequence fits its position. `name`: the source's
    name in errors.
    """

    def __init__(self, records: Sequence[object], name: str = "memory", first: int = 1) -> None:
        for time, record in enumerate(records, first):
            assert not isinstance(record, BadRecord) or record.time == time, record
        self.name = name
        self._records = records
        self._first = first

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """Yield all records with time >= `start`; skip the others in O(1)."""
        for i in range(max(0, start - self._first), len(self._records)):
            record = self._records[i]
            yield record if isinstance(record, BadRecord) else (self._first + i, record)

    def progress(self) -> tuple[int, int] | None:
        """Return None: records in memory have no size in bytes."""
        return None

    def identity(self) -> str:
        """Return a text with a hash of the records. Cost: encodes all records."""
        content = hashlib.sha256()
        for record in self._records:
            content.update(pack(astuple(record) if isinstance(record, BadRecord) else record))
        return f"{self.name}, from {self._first}, {content.hexdigest()[:32]}"


ID_STRIDE = 2**40
"""Increase of an integer id per round. In later rounds, an id that is negative or not smaller than
this becomes a bad record. Ids fit into 64 bits for 2**22 rounds."""


class Repeated:
    """Source that repeats another source's records, round after round, up to time `documents`.

    Precondition: the source's times are 1, 2, ... The times continue from round to round. Ids stay
    unique and keep their type: in round k > 1, `~k` is appended to an id that is a str, and
    (k - 1) * 2**40 is added to one that is an int. Bad records are repeated, too, and count as
    documents.
    """

    def __init__(self, source: Source, documents: int) -> None:
        self.name = f"{source.name}, repeated"
        self._source = source
        self._documents = documents
        self._period: int | None = None  # the source's last time; None until a round is complete

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """Yield all records with time >= `start`. The first call counts the records of a round."""
        start = max(1, start)
        if self._period is None:
            last = 0
            for record in self._source.read(1):
                last = _time(record)
                if last > self._documents:
                    return
                if last >= start:
                    yield record
            self._period = last
            start = max(start, last + 1)
        if self._period:
            yield from self._rounds(start, self._period)

    def _rounds(self, start: int, period: int) -> Iterator[tuple[int, object] | BadRecord]:
        for completed_rounds in count((start - 1) // period):
            offset = completed_rounds * period
            for record in self._source.read(max(1, start - offset)):
                time = offset + _time(record)
                if time > self._documents:
                    return
                yield self._copy(record, completed_rounds, time)

    def _copy(
        self, record: tuple[int, object] | BadRecord, completed_rounds: int, time: int
    ) -> tuple[int, object] | BadRecord:
        """Return the copy of a record in a round, with its new time and id."""
        if isinstance(record, BadRecord):
            return replace(record, time=time)
        _, document = record
        if completed_rounds == 0 or not isinstance(document, dict) or "id" not in document:
            return time, document
        document_id = document["id"]
        if isinstance(document_id, str):
            return time, {**document, "id": f"{document_id}~{completed_rounds + 1}"}
        if 0 <= document_id < ID_STRIDE:
            return time, {**document, "id": document_id + completed_rounds * ID_STRIDE}
        reason = f"the id {document_id} cannot be repeated: it is not in the range from 0 to 2**40"
        return BadRecord(time, self.name, reason, "")

    def progress(self) -> tuple[int, int] | None:
        """Return None: the size of all rounds is not known in advance."""
        return None

    def identity(self) -> str:
        """Return the source's identity, and the number of records."""
        return f"{self._source.identity()}, repeated up to {self._documents}"


def _time(record: tuple[int, object] | BadRecord) -> int:
    return record.time if isinstance(record, BadRecord) else record[0]
