"""The frames of the journal: an entry for each bundle, a header for each segment.

`inspect_journal` reads the files of a journal without changing them.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from driftline.connectors.sinks.consumer import check_items
from driftline.engine.errors import MalformedMessage, StateMismatch
from driftline.engine.storage.segment_log import (
    LogDamaged,
    damaged_at,
    frames_of,
    header_of,
    numbers_in,
    path_of,
)
from driftline.engine.texts import counted
from driftline.engine.wire.bundles import Item, from_blob
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.messages import Bundle

_FORMAT = 1


class JournalEntry(Struct, frozen=True):
    """A stored bundle.

    `groups`: the first and the last key group of the barrier; `t_last`, `checksum`: as in `Bundle`.
    """

    barrier: str
    groups: tuple[int, int]
    t_last: int
    checksum: int
    times: tuple[int, ...] = ()
    """The label time of each blob, increasing."""
    blobs: tuple[bytes, ...] = ()

    def without_outputs(self) -> JournalEntry:
        """Return the entry without its outputs: only the progress of the barrier."""
        return replace(self, times=(), blobs=())

    def encode(self) -> bytes:
        """Return the payload of the entry's frame."""
        return pack(self._parts())

    @staticmethod
    def decode(payload: bytes) -> JournalEntry:
        """Decode the result of `encode`. Precondition: the frame's checksum was valid."""
        return JournalEntry(*unpack(payload))  # type: ignore[misc]

    def _parts(self) -> tuple[object, ...]:
        return self.barrier, self.groups, self.t_last, self.checksum, self.times, self.blobs


class SegmentHeader(Struct, frozen=True):
    """The state of the merge at the start of a segment."""

    time: int = 0
    """T: earlier segments contain all outputs below it, and perhaps later ones, which `waiting`
    repeats."""
    last: tuple[JournalEntry, ...] = ()
    """The last entry of each barrier, without outputs."""
    waiting: tuple[JournalEntry, ...] = ()
    """Outputs that wait for other barriers, in one entry per barrier with such outputs; `t_last`
    and `checksum` of these entries are 0."""

    def encode(self) -> bytes:
        """Return the payload of the header's frame."""
        parts = ([entry._parts() for entry in part] for part in (self.last, self.waiting))
        return pack((_FORMAT, self.time, *parts))

    @staticmethod
    def decode(payload: bytes) -> SegmentHeader | None:
        """Decode the result of `encode`; None for a header of another format version."""
        parts = unpack(payload)
        if not isinstance(parts, tuple) or parts[:1] != (_FORMAT,):
            return None
        _, time, last, waiting = parts
        return SegmentHeader(
            time, tuple(JournalEntry(*e) for e in last), tuple(JournalEntry(*e) for e in waiting)
        )


BEGINNING = SegmentHeader()
"""The header of the first segment."""


def entry_of(bundle: Bundle, groups: int, sinks: int) -> tuple[JournalEntry, list[list[Item]]]:
    """Return the entry of a bundle, and the items of each of its blobs.

    `groups`, `sinks`: how many key groups and sinks the flow has. Raises MalformedMessage for an
    invalid bundle.
    """
    first, last = bundle.groups
    if not 0 <= first <= last < groups:
        raise MalformedMessage(
            f"a bundle of key groups {first} to {last}; the flow has {groups} key groups"
        )
    decoded = list(map(from_blob, bundle.blobs))
    check_items(list(chain.from_iterable(decoded)), sinks)
    times = []
    for items in decoded:
        label_times = {item.label[:1] for item in items}
        if len(label_times) != 1 or label_times == {()}:
            raise MalformedMessage("a blob whose outputs do not all have the same label time")
        times.append(items[0].label[0])
    if times != sorted(set(times)) or max(times, default=0) > bundle.t_last:
        raise MalformedMessage(
            f"a bundle whose blobs have the times {times}; they must increase, up to the bundle's "
            f"t_last, {bundle.t_last}"
        )
    progress = bundle.barrier, bundle.groups, bundle.t_last, bundle.checksum
    return JournalEntry(*progress, tuple(times), bundle.blobs), decoded


class JournalContents(Struct, frozen=True):
    """A summary of a journal's files."""

    t_last: int = -1
    """The largest t_last of all barriers; -1 if there is none."""
    segments: int = 0
    """Number of segments that were read."""
    entries: int = 0
    """Number of bundles in these segments."""
    torn: str = ""
    """A warning about an incomplete entry at the end, which the next opening removes; or ""."""


def inspect_journal(directory: Path, *, all_segments: bool = False) -> JournalContents:
    """Summarise the files of a journal.

    By default reads only the last segment, from which the journal continues. `all_segments`: read
    all segments, and check that each continues where the previous one ended. Raises LogDamaged for
    damage, StateMismatch for another format version, OSError.
    """
    numbers = numbers_in(directory)
    to_read = numbers if all_segments else numbers[-1:]
    entries, torn_bytes = 0, 0
    last: dict[str, JournalEntry] = {}
    for number in to_read:
        path, end = path_of(directory, number), 0
        for frame in frames_of(directory, number):
            end = frame.end
            if frame.is_header:
                header = decode_header(frame.payload, path)
                if number != to_read[0] and [last[name] for name in sorted(last)] != [*header.last]:
                    raise gap_error(directory, header.time)
                last = {entry.barrier: entry for entry in header.last}
            else:
                entry = JournalEntry.decode(frame.payload)
                last[entry.barrier] = entry.without_outputs()
                entries += 1
        torn_bytes = path.stat().st_size - end
        if torn_bytes and number != numbers[-1]:
            raise damaged_at(path, end)
    t_last = max((entry.t_last for entry in last.values()), default=-1)
    if not torn_bytes:
        return JournalContents(t_last, len(to_read), entries)
    size, path = counted(torn_bytes, "byte"), path_of(directory, numbers[-1])
    warning = f"{path} ends with {size} of an incomplete record, which the next opening removes"
    return JournalContents(t_last, len(to_read), entries, warning)


def oldest_retained_time(directory: Path) -> int:
    """Return the smallest time from which the journal retains all outputs; 0: it retains all.

    Precondition: `inspect_journal` has raised nothing. Raises OSError.
    """
    numbers = numbers_in(directory)
    if not numbers:
        return 0
    return decode_header(header_of(directory, numbers[0]), path_of(directory, numbers[0])).time


def decode_header(payload: bytes, path: Path) -> SegmentHeader:
    """Decode a segment's header. Raises StateMismatch if it has another format version."""
    header = SegmentHeader.decode(payload)
    if header is None:
        raise StateMismatch(
            f"{path} was written by another version of Driftline: use that version, or give "
            "another directory"
        )
    return header


def gap_error(directory: Path, time: int) -> LogDamaged:
    """Return the error for a segment that does not continue where the previous one ended."""
    return LogDamaged(
        f"{directory} lacks outputs from before time {time}: the end of a segment is missing"
    )
