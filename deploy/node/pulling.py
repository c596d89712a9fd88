"""Pulling: reads what a node has in its store of a snapshot, a slice at a time.

Takes: `Parts` and `Slice` (the node, see `giving.py`), the time. Gives: `AskParts` and `AskSlice`,
one question at a time, and segments. Invariant: each segment of the list is given once, whole, and
as its checksum says.
"""

from __future__ import annotations

from collections import deque
from zlib import crc32

from driftline.engine.errors import SnapshotDamaged
from driftline.engine.wire.messages import SLICE_BYTES, AskParts, AskSlice, Parts, Slice

ASK_AGAIN_S = 1.0
"""Seconds until a question that has no answer is asked again, and until another try begins."""


class Pull:
    """What is read from one source, for one snapshot."""

    def __init__(self, source: str, question: AskParts) -> None:
        self._source = source
        self._question = question
        self._listed = False
        self._wanted: deque[tuple[int, int, int]] = deque()
        """(part, key group, checksum) of the segments that are still to be read."""
        self._slices: list[bytes] = []
        self._offset = 0
        self._ask_at = 0.0

    @property
    def is_over(self) -> bool:
        """Whether all was read."""
        return self._listed and not self._wanted

    def question(self, now: float) -> AskParts | AskSlice | None:
        """The next question, or the last one again; None while there is none to be asked."""
        if self.is_over or now < self._ask_at:
            return None
        self._ask_at = now + ASK_AGAIN_S
        if not self._listed:
            return self._question
        part, group, _ = self._wanted[0]
        return AskSlice(self._question.address, part, group, self._offset)

    def take(self, answer: Parts | Slice) -> bytes:
        """Take an answer. Returns a segment that is whole now. Raises SnapshotDamaged."""
        if isinstance(answer, Parts):
            asked = self._question.number, self._question.after
            if not self._listed and (answer.number, answer.after) == asked:
                self._listed = True
                self._wanted.extend(answer.segments)
                self._ask_at = 0.0
            return b""
        if not self._wanted:
            return b""
        part, group, checksum = self._wanted[0]
        if (answer.part, answer.group, answer.offset) != (part, group, self._offset):
            return b""
        self._ask_at = 0.0
        self._slices.append(answer.data)
        self._offset += len(answer.data)
        if len(answer.data) == SLICE_BYTES:
            return b""
        segment = b"".join(self._slices)
        self._wanted.popleft()
        self._slices, self._offset = [], 0
        self._check(segment, checksum, f"key group {group} of snapshot {part}")
        return segment

    def _check(self, segment: bytes, checksum: int, what: str) -> None:
        if crc32(segment) != checksum:
            raise SnapshotDamaged(f"{what} of {self._source} is damaged, or has been joined since")
