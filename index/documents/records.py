"""What clients want of documents and watches, as records of the flow's source.

A client makes them without anything else of the index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Write:
    """What a client wants of a document; `document`: None: it is to be deleted.

    `expected`: the time of the version that there has to be, 0: there must be none; None: whatever
    there is. `key`: the client's own name for this write, so that it may be sent again; "": none.
    """

    collection: str
    id: str
    document: Mapping[str, object] | None
    expected: int | None = None
    key: str = ""

    def record(self) -> dict[str, object]:
        """As a record of the flow's source."""
        return {
            "collection": self.collection,
            "id": self.id,
            "document": self.document,
            "expected": self.expected,
            "key": self.key,
        }


@dataclass(frozen=True, slots=True)
class WatchWrite:
    """That a watch is put, or replaced; `query`: None: it is to be removed.

    Watches have ids of their own: a document may have the same.
    """

    collection: str
    id: str
    query: str | None

    def record(self) -> dict[str, object]:
        """As a record of the flow's source. It has no "id", and that of a `Write` no "watch"."""
        return {"collection": self.collection, "watch": self.id, "query": self.query}
