"""Event streams that survive broken connections: each event once, in order.

The id of an event is the first T that includes the event. A new connection requests the events from
the last received id on. An event that a broken connection cut off is ignored.

Input: bytes, in pieces of any size. Output: events. Invariant: each event before
`StreamPosition.at` was returned once.

>>> assembler = EventAssembler()
>>> [*assembler.feed(b'id: 7\\ndata: {"a"'), *assembler.feed(b': 1}\\n\\nid: 8\\nda')]
[ServerEvent(name='', id='7', data='{"a": 1}')]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from driftline.index.client.errors import ServiceUnavailable, parse_error
from driftline.index.client.results import convert, loads

T = TypeVar("T")

BEGINNING = "00000000000000"
"""T that precedes all events."""


class ServerEvent(NamedTuple):
    """A server-sent event; `name`: "" for a change or watch event, "time" for progress, "error"."""

    name: str
    id: str
    data: str


class EventAssembler:
    """Assembler of the events of one connection from received bytes."""

    def __init__(self) -> None:
        self._partial = bytearray()

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """Yield the events that are now complete."""
        self._partial += data
        *complete, rest = bytes(self._partial).replace(b"\r\n", b"\n").split(b"\n\n")
        self._partial = bytearray(rest)
        for text in complete:
            yield _event(text.decode(errors="replace"))


def _event(text: str) -> ServerEvent:
    fields = {"event": "", "id": ""}
    data = []
    for line in text.split("\n"):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name in fields:
            fields[name] = value
    return ServerEvent(fields["event"], fields["id"], "\n".join(data))


class StreamPosition(Generic[T]):
    """Position in an event stream across any number of connections.

    `path`: path of the request; `kind`: type of an event's data; `at`: T to start from, later the T
    before which all events were returned; if it is "", the caller sets it to the current T before
    `begin`. `until`: T at which the stream ends, "": never.
    """

    def __init__(self, path: str, kind: type[T], at: str = "", until: str = "") -> None:
        self.path = path
        self.at = at
        self._until = until
        self._kind = kind
        self._assembler = EventAssembler()

    def is_over(self) -> bool:
        """Return whether the stream has reached its end."""
        return bool(self._until) and self.at >= self._until

    def begin(self) -> Mapping[str, str]:
        """Prepare for a new connection; return the parameters of its request."""
        self._assembler = EventAssembler()
        return {"from": self.at}

    def feed(self, data: bytes) -> Iterator[T]:
        """Yield the data of new events up to `until`. Raises ServiceError for an error event."""
        for event in self._assembler.feed(data):
            value = loads(event.data)
            if event.name == "error":
                raise parse_error(value) or ServiceUnavailable(
                    "unavailable", "the service ended the stream with an error of unknown form"
                )
            if event.id <= self.at:
                continue  # a heartbeat or a duplicate
            if self._until and event.id > self._until:
                self.at = self._until
                return
            self.at = event.id
            if not event.name:
                yield convert(value, self._kind)
