"""Checkpoints of views: files from which a view restarts, to read only the rest of the journal.

A view can always be made anew from the journal, as far as that is retained. So a checkpoint that is
damaged, or of another run, is told of, and not used. Beside it there are notes on how far back the
view answers.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from driftline.engine.durable import replace_file, reported, sync_directory, write_at
from driftline.engine.errors import MalformedMessage, SnapshotDamaged
from driftline.engine.events import about as event
from driftline.engine.events import log
from driftline.engine.storage.segment_log import HEAD_BYTES, framed, payload_at
from driftline.engine.wire.codec import pack, unpack
from driftline.serve.views.hosted import View

_END = b""
"""The last frame: a file without it is not whole."""

NOTES = 64
"""Notes of the retained time; between them nothing is noted."""

Note = tuple[float, int]
"""(when, in seconds since 1970; the T that was the newest then)"""

V = TypeVar("V", bound=View)


def writing(path: Path, about: str, parts: Iterable[bytes]) -> Iterator[None]:
    """Write a checkpoint in steps, between which other work may be done; the last one makes it so.

    Until then, and if it is never taken, the checkpoint before stays as it is.

    Args:
        path: The file. Its directory is there.
        about: Whose checkpoint it is: of which view, of which run.
        parts: What the view has saved.

    Yields:
        After each part.

    Raises:
        Unavailable: If it cannot be written.
    """
    draft = path.with_name(f".{path.name}.draft")
    with reported("checkpoint", path):
        draft.unlink(missing_ok=True)  # of one that was killed: nobody else writes to this file
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        offset = 0
        for payload in _payloads(about, parts):
            frame = framed(payload, 0, offset, 0)
            with reported("checkpoint", path):
                write_at(file, frame, offset)
            offset += len(frame)
            yield
        with reported("checkpoint", path):
            os.fdatasync(file)
            os.replace(draft, path)
            sync_directory(path.parent)
    finally:
        os.close(file)


def _payloads(about: str, parts: Iterable[bytes]) -> Iterator[bytes]:
    yield about.encode()
    yield from parts
    yield _END


def restored(path: Path, about: str, make: Callable[[], V]) -> V:
    """The view of a checkpoint; a new one, as of the beginning, if there is none that can be used.

    Raises Unavailable if the file cannot be read.
    """
    view = make()
    try:
        if path.exists():
            view.load(parts_of(path, about))
    except SnapshotDamaged as error:
        told = event("checkpoint-unused", path=str(path), reason=str(error))
        log.warning("%s; the view begins anew", error, extra=told)
        return make()
    return view


def parts_of(path: Path, about: str | None = None) -> Iterator[bytes]:
    """What a view has saved; `about`: whose checkpoint it has to be, None: that of any.

    Raises SnapshotDamaged, Unavailable.
    """
    with reported("checkpoint", path), path.open("rb", buffering=1 << 20) as file:
        end, offset = os.fstat(file.fileno()).st_size, 0
        while (payload := payload_at(file, 0, offset, end)) != _END:
            if payload is None:
                raise SnapshotDamaged(f"the checkpoint {path} is damaged at byte {offset}")
            if offset:
                yield payload
            elif about is not None and payload != about.encode():
                raise SnapshotDamaged(f"the checkpoint {path} is of another view or run")
            offset += HEAD_BYTES + len(payload)


class Retained:
    """How far back a view answers: for so many seconds at least, however often it restarts.

    When a checkpoint is begun, it is noted which T is the newest, and when that is. What was the
    newest long enough ago is the oldest T that can be asked for. The notes are beside the
    checkpoint, so that a restart goes on with them: else a process that dies every few minutes
    would keep everything for ever. If they are lost, more is retained than has to be, and nothing
    else changes. `now`: gives the seconds since 1970; `notes`: of earlier processes.
    """

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
