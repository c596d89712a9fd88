"""Writes to an index over ZeroMQ: pipelined, exactly once, and acknowledged when durable.

    with IndexProducer("tcp://host:5555", "crawler-3") as index:
        for id, document in documents[index.acknowledged :]:
            index.put(id, document)

`IndexProducer` wraps a `driftline.Producer`; its rules for numbers, windows and timeouts apply. An
invalid write is acknowledged too. The flow turns it into a dead letter, which the log and metrics
of the service report; other writes are unaffected.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from driftline.deploy.producer import TIMEOUT_S, WINDOW, WINDOW_BYTES, Producer
from driftline.index.client.async_client import NO_LABEL
from driftline.index.documents.records import WatchWrite, Write
from driftline.serve.views.tokens import time_of, token_of


class IndexProducer:
    """A connection to `driftline serve --zmq ADDRESS`, for one sequence of writes.

    A context manager: a block that ends without an exception calls `flush`. `producer_id`: name of
    the sequence of writes, the same after a restart; `collection`: target of the writes. The other
    arguments, and the exceptions, are those of `Producer`.
    """

    def __init__(
        self,
        address: str,
        producer_id: str,
        *,
        collection: str = "documents",
        window: int = WINDOW,
        window_bytes: int = WINDOW_BYTES,
        timeout_s: float = TIMEOUT_S,
        keys: str | Path | None = None,
    ) -> None:
        self.collection = collection
        self._producer = Producer(
            address, producer_id, window=window, window_bytes=window_bytes, timeout_s=timeout_s,
            keys=keys,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._producer.__exit__(kind, error, trace)

    @property
    def acknowledged(self) -> int:
        """Number of the last durable write; all writes up to this number are durable."""
        return self._producer.acknowledged

    @property
    def label(self) -> str:
        """Label that covers all acknowledged writes; after `flush`, these are all writes.

        Pass it to a read as `after` to see these writes.
        """
        return token_of(self._producer.below)

    def put(
        self, id: str, document: Mapping[str, object], *, if_label: str | None = None, key: str = ""
    ) -> int:
        """Put a document; block only while the window is full. Return the write's number.

        `if_label`: as in `IndexClient.put`, but a failed condition is not reported; `key`:
        idempotency key, "": none. Raises BadToken for an invalid `if_label`, PayloadError for
        unserialisable values, Unavailable if the service does not respond.
        """
        return self._send(Write(self.collection, id, dict(document), _expected(if_label), key))

    def delete(self, id: str, *, if_label: str | None = None, key: str = "") -> int:
        """Delete a document. Blocking, result and errors are those of `put`."""
        return self._send(Write(self.collection, id, None, _expected(if_label), key))

    def put_watch(self, id: str, q: str) -> int:
        """Store a query, as `put` stores a document. An invalid query matches nothing."""
        return self._send(WatchWrite(self.collection, id, q))

    def remove_watch(self, id: str) -> int:
        """Remove a stored query. Blocking, result and errors are those of `put`."""
        return self._send(WatchWrite(self.collection, id, None))

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all writes are durable, or the service stops responding.

        `timeout_s`, and the exceptions: as in `Producer.flush`.
        """
        self._producer.flush(timeout_s)

    def close(self) -> None:
        """Close the connection at once: unacknowledged writes may be lost."""
        self._producer.close()

    def _send(self, write: Write | WatchWrite) -> int:
        return self._producer.send(write.record())


def _expected(if_label: str | None) -> int | None:
    """Return the time of the write that must be the current version (a label is that time + 1).

    0: no version may exist; None: no condition. Raises BadToken.
    """
    if if_label is None:
        return None
    return 0 if if_label == NO_LABEL else time_of(if_label) - 1
