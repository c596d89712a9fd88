"""How far back a view answers: for so many seconds at least, however often its process restarts.

When a checkpoint is begun, it is noted which T is the newest, and when that is. What was the newest
long enough ago is the oldest T that can be asked for. The notes are beside the checkpoint, so that
a restart goes on with them: else a process that dies every few minutes would keep everything for
ever. If they are lost, more is retained than has to be, and nothing else changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from driftline.engine.durable import replace_file, reported
from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import pack, unpack

NOTES = 64
"""Notes of the retained time; between them nothing is noted."""

Note = tuple[float, int]
"""(when, in seconds since 1970; the T that was the newest then)"""


class Retained:
    """What is retained; `now`: gives the seconds since 1970; `notes`: of earlier processes."""

    def __init__(
        self, seconds: float, now: Callable[[], float], notes: Iterable[Note] = ()
    ) -> None:
        self._seconds = seconds
        self._now = now
        self._notes = deque(notes)
        """Only the first may be older than what is retained."""

    def since(self, newest: int) -> int:
        """The oldest T that has to be retained; 0: all. `newest`: the newest one, just now."""
        notes, now = self._notes, self._now()
        if not notes or now >= notes[-1][0] + self._seconds / NOTES:
            notes.append((now, newest))
        while len(notes) > 1 and notes[1][0] <= now - self._seconds:
            notes.popleft()
        when, time = notes[0]
        return time if when <= now - self._seconds else 0

    def write(self, path: Path) -> None:
        """Keep the notes in a file. Raises Unavailable."""
        with reported("note of what is retained", path):
            replace_file(path, pack(tuple(self._notes)))


def noted(path: Path, time: int) -> list[Note]:
    """The notes in a file, of which those count that are not later than a time; none, if there is
    no such file, or it is damaged. Raises Unavailable."""
    with reported("note of what is retained", path):
        data = path.read_bytes() if path.exists() else b""
    try:
        rows = unpack(data)
    except MalformedMessage:
        return []
    found: list[Note] = []
    for row in rows if isinstance(rows, tuple) else ():
        match row:
            case (float(when), int(newest)) if newest <= time:
                found.append((when, newest))
    return sorted(found)
