"""Write requests for documents and watches, as records of the flow's source.

Clients can import this module without the rest of the index.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Write(Struct, frozen=True):
    """Write request for a document; `document`: None deletes it.

    `expected`: label time of the version that must be current; 0: the document must not exist;
    None: no condition. `key`: idempotency key chosen by the client; "": none.
    """

    collection: str
    id: str
    document: Mapping[str, object] | None
    expected: int | None = None
    key: str = ""

    def record(self) -> dict[str, object]:
        """Return a record of the flow's source."""
        return {
            "collection": self.collection,
            "id": self.id,
            "document": self.document,
            "expected": self.expected,
            "key": self.key,
        }


class WatchWrite(Struct, frozen=True):
    """Write request for a watch, which is a stored query; `query`: None removes the watch.

    Watches have separate ids: a document may have the same id as a watch.
    """

    collection: str
    id: str
    query: str | None

    def record(self) -> dict[str, object]:
        """Return a record of the flow's source.

        It has a field "watch" instead of "id"; the record of a `Write` has "id".
        """
        return {"collection": self.collection, "watch": self.id, "query": self.query}
