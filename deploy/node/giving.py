"""Giving: a node hands the state in its store to the nodes of the next layout, a slice at a time.

Takes: `AskParts` and `AskSlice` (nodes of the next layout), results of the disk. Gives: jobs, and
`Parts`, `Slice` or `NoParts`. Invariant: what is given is in durable parts of committed snapshots.

The loop only passes on what the disk thread has read. Whoever asks has few questions under way:
that bounds what waits here. Parts that are read are not joined meanwhile. If they are joined or
removed all the same, who asks sees that by the checksums, and begins anew.
"""

from __future__ import annotations

from math import inf

from driftline.engine.errors import Unavailable
from driftline.engine.snapshots.jobs import ListParts, ReadSlice
from driftline.engine.wire.messages import (
    SLICE_BYTES,
    AskParts,
    AskSlice,
    Message,
    NoParts,
    Parts,
    Slice,
)

READS_S = 3.0
"""Seconds since the last question for which parts are not joined: there may be another one."""


class Giving:
    """What a node gives to others."""

    def __init__(self) -> None:
        self._asked_at = -inf

    def is_read(self, now: float) -> bool:
        """Whether somebody may be reading."""
        return now < self._asked_at + READS_S

    def ask(self, sender: str, message: AskParts | AskSlice, now: float) -> ListParts | ReadSlice:
        """A question has come. Returns the job that answers it."""
        self._asked_at = now
        if isinstance(message, AskSlice):
            return ReadSlice(sender, message.part, message.group, message.offset, SLICE_BYTES)
        snapshots = message.number, message.taken, message.after, message.after_taken
        return ListParts(sender, *snapshots, message.groups)

    def answer(self, job: ListParts | ReadSlice, result: object) -> Message | None:
        """The disk has answered. Returns the answer to `job.to`; None: it will ask again."""
        if isinstance(job, ReadSlice):
            if not isinstance(result, bytes):
                return None
            return Slice(job.part, job.group, job.offset, result)
        if isinstance(result, tuple):
            return Parts(job.number, job.after, result)
        return None if isinstance(result, Unavailable) else NoParts(str(result))
