"""What is in the frames of the journal: an entry for each bundle, a header for each segment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

from driftline.connectors.sinks.consumer import check_items
from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.bundles import Item, from_blob
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.messages import Bundle

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """A bundle as it is stored."""

    barrier: str
    groups: tuple[int, int]
    t_last: int
    checksum: int
    times: tuple[int, ...] = ()
    """The time of each blob; they grow."""
    blobs: tuple[bytes, ...] = ()

    def bare(self) -> Entry:
        """How far the barrier is, without its outputs."""
        return replace(self, times=(), blobs=())

    def encode(self) -> bytes:
        """The payload of its frame."""
        return pack(self._parts())

    @staticmethod
    def decode(payload: bytes) -> Entry:
        """Decode `encode`. Precondition: it is one, as the frame's checksum says."""
        return Entry(*unpack(payload))  # type: ignore[misc]

    def _parts(self) -> tuple[object, ...]:
        return self.barrier, self.groups, self.t_last, self.checksum, self.times, self.blobs


@dataclass(frozen=True, slots=True)
class Header:
    """What has to be known of all that is before a segment."""

    time: int = 0
    """All outputs below this time are before the segment; of the others only those that wait."""
    last: tuple[Entry, ...] = ()
    """How far each barrier is that has ever spoken, without its outputs."""
    waiting: tuple[Entry, ...] = ()
    """The outputs that wait for other barriers, in an entry for each barrier that has any."""

    def encode(self) -> bytes:
        """The payload of its frame."""
        parts = ([entry._parts() for entry in part] for part in (self.last, self.waiting))
        return pack((_FORMAT, self.time, *parts))

    @staticmethod
    def decode(payload: bytes) -> Header | None:
        """Decode `encode`; None for the header of another format."""
        parts = unpack(payload)
        if not isinstance(parts, tuple) or parts[:1] != (_FORMAT,):
            return None
        _, time, last, waiting = parts
        return Header(time, tuple(Entry(*e) for e in last), tuple(Entry(*e) for e in waiting))


BEGINNING = Header()
"""The header of the first segment."""


def entry_of(bundle: Bundle, groups: int, sinks: int) -> tuple[Entry, list[list[Item]]]:
    """The entry of a bundle, and the items of each of its blobs.

    `groups`, `sinks`: how many the flow has. Raises MalformedMessage for what is no bundle of it.
    """
    first, last = bundle.groups
    if not 0 <= first <= last < groups:
        raise MalformedMessage(f"a bundle of key groups {first} to {last}, of {groups}")
    decoded = list(map(from_blob, bundle.blobs))
    check_items(list(chain.from_iterable(decoded)), sinks)
    times = []
    for items in decoded:
        of_blob = {item.label[:1] for item in items}
        if len(of_blob) != 1 or of_blob == {()}:
            raise MalformedMessage("a blob with outputs of no time, or of several")
        times.append(items[0].label[0])
    if times != sorted(set(times)) or max(times, default=0) > bundle.t_last:
        raise MalformedMessage(f"a bundle up to {bundle.t_last} with blobs of the times {times}")
    told = bundle.barrier, bundle.groups, bundle.t_last, bundle.checksum
    return Entry(*told, tuple(times), bundle.blobs), decoded
