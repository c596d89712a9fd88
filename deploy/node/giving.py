"""Giving: a node hands the state in its store to the nodes of the next layout, a slice at a time.

Takes: `AskParts` and `AskSlice` (nodes of the next layout), results of the disk. Gives: jobs, and
`Parts`, `Slice` or `NoParts`. Invariant: what is given is in durable parts of committed snapshots.

The loop only passes on what the disk thread has read. Whoever asks has few questions under way:
that bounds what waits here. Parts that are read are not joined meanwhile. If they are removed all
the same, as this process has been started again or has recovered to an earlier snapshot, their
generation is another one, and who asks begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from driftline.engine.snapshots.jobs import Listed, ListParts, ReadSlice
from driftline.engine.wire.messages import (
    SLICE_BYTES,
    AskParts,
    AskSlice,
    Message,
    NoParts,
    Parts,
    Slice,
)
from driftline.engine.wire.party import Job

READS_S = 3.0
"""Seconds since the last question for which parts are not joined: there may be another one."""


class Giving:
    """What one process of a node gives to others; `process`: a token of it."""

    def __init__(self, process: str, send: Callable[[str, Message], None]) -> None:
        self._process = process
        self._send = send
        self._asked_at = -inf

    def is_read(self, now: float) -> bool:
        """Whether somebody may be reading."""
        return now < self._asked_at + READS_S

    def ask(self, sender: str, message: AskParts | AskSlice, now: float) -> Job | None:
        """A question has come. Returns the job that answers it, if the disk has to be asked."""
        self._asked_at = now
        if isinstance(message, AskParts):
            snapshots = message.number, message.taken, message.after, message.after_taken
            return ListParts(sender, *snapshots, message.groups)
        process, _, generation = message.generation.rpartition(" ")
        if process != self._process or not generation.isdecimal():
            self._send(sender, NoParts("this is another process of the node"))
            return None
        where = message.part, message.group, message.offset
        return ReadSlice(sender, int(generation), *where, SLICE_BYTES)

    def done(self, job: ListParts | ReadSlice, result: object) -> None:
        """The disk has answered."""
        if isinstance(result, Exception):
            self._send(job.to, NoParts(str(result)))
        elif isinstance(job, ListParts) and isinstance(result, Listed):
            generation = f"{self._process} {result.generation}"
            self._send(job.to, Parts(job.number, job.after, generation, result.segments))
        elif isinstance(job, ReadSlice) and isinstance(result, bytes):
            generation = f"{self._process} {job.generation}"
            self._send(job.to, Slice(generation, job.part, job.group, job.offset, result))
