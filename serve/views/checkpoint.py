"""Checkpoints of views: after a restart, a view reads only the journal after its checkpoint.

A checkpoint that is damaged or belongs to another run is logged and ignored, if the journal still
contains all outputs from the beginning: the view is rebuilt from it. A second file contains
notes: which T was the newest at which moment. From them `Retention` computes how far back a view
must answer.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from driftline.engine.durable import replace_file, sync_directory, translate_os_errors, write_at
from driftline.engine.errors import MalformedMessage, SnapshotDamaged
from driftline.engine.events import event_fields, log
from driftline.engine.storage.segment_log import HEAD_BYTES, framed, payload_at
from driftline.engine.wire.codec import pack, unpack
from driftline.serve.views.hosted import View

_END = b""
"""Payload of the last frame; a file without this frame is incomplete."""

NOTES_PER_PERIOD = 64
"""Largest number of notes that are taken within one retention period."""

Note = tuple[float, int]
"""(seconds since 1970, the newest T at that moment)"""

V = TypeVar("V", bound=View)


def write_checkpoint(path: Path, identity: str, parts: Iterable[bytes]) -> Iterator[None]:
    """Write a checkpoint in steps; the caller may do other work between them.

    The last step replaces the previous checkpoint, which stays unchanged until then.

    Args:
        path: The file, in an existing directory.
        identity: The view and the run, as a text that `restore_view` compares.
        parts: The state of the view, from `View.save`.

    Yields:
        None after each frame: the identity, each part, and the end.

    Raises:
        Unavailable: If the file cannot be written.
    """
    draft = path.with_name(f".{path.name}.draft")
    with translate_os_errors("checkpoint", path):
        draft.unlink(missing_ok=True)  # left by a killed writer; only one writer runs at a time
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        offset = 0
        for payload in _payloads(identity, parts):
            frame = framed(payload, 0, offset, 0)
            with translate_os_errors("checkpoint", path):
                write_at(file, frame, offset)
            offset += len(frame)
            yield
        with translate_os_errors("checkpoint", path):
            os.fdatasync(file)
            os.replace(draft, path)
            sync_directory(path.parent)
    finally:
        os.close(file)


def _payloads(identity: str, parts: Iterable[bytes]) -> Iterator[bytes]:
    yield identity.encode()
    yield from parts
    yield _END


def restore_view(path: Path, identity: str, make: Callable[[], V]) -> V:
    """Return the view restored from a checkpoint, or an empty one if no checkpoint is usable.

    `identity`: as in `write_checkpoint`; `make`: returns an empty view. Raises Unavailable if the
    file cannot be read.
    """
    view = make()
    try:
        if path.exists():
            view.load(read_parts(path, identity))
    except SnapshotDamaged as error:
        fields = event_fields("checkpoint-unused", path=str(path), reason=str(error))
        log.warning("%s; rebuilding the view from the journal", error, extra=fields)
        return make()
    return view


def read_parts(path: Path, identity: str | None = None) -> Iterator[bytes]:
    """Yield the parts in a checkpoint. `identity`: the expected identity; None: accept any.

    Raises SnapshotDamaged, Unavailable.
    """
    with translate_os_errors("checkpoint", path), path.open("rb", buffering=1 << 20) as file:
        end, offset = os.fstat(file.fileno()).st_size, 0
        while (payload := payload_at(file, 0, offset, end)) != _END:
            if payload is None:
                raise SnapshotDamaged(f"the checkpoint {path} is damaged at byte {offset}")
            if offset:
                yield payload
            elif identity is not None and payload != identity.encode():
                raise SnapshotDamaged(f"the checkpoint {path} is of another view or run")
            offset += HEAD_BYTES + len(payload)


class Retention:
    """Retention of a view's history for at least `seconds`, also across restarts.

    Before each checkpoint, the view's host calls `oldest_to_retain`, which notes the clock and the
    newest T, at most `NOTES_PER_PERIOD` times in `seconds`. The view keeps the history after the T
    that was the newest one `seconds` ago. The notes are stored beside the checkpoint, and a
    restarted process continues with them. Otherwise a process that restarts every few minutes would
    never drop history. If the notes are lost, the view keeps more history than needed.
    `clock`: returns seconds since 1970; `notes`: the notes of earlier processes.
    """

    def __init__(
        self, seconds: float, clock: Callable[[], float], notes: Iterable[Note] = ()
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._notes = deque(notes)
        """The notes, oldest first; only the first may be older than `seconds`."""

    def oldest_to_retain(self, newest: int) -> int:
        """Note the current T, `newest`. Return the oldest T to retain; 0: retain all history."""
        notes, now = self._notes, self._clock()
        if not notes or now >= notes[-1][0] + self._seconds / NOTES_PER_PERIOD:
            notes.append((now, newest))
        while len(notes) > 1 and notes[1][0] <= now - self._seconds:
            notes.popleft()
        noted_at, time = notes[0]
        return time if noted_at <= now - self._seconds else 0

    def write(self, path: Path) -> None:
        """Write the notes to a file. Raises Unavailable."""
        with translate_os_errors("retention notes of a view", path):
            replace_file(path, pack(tuple(self._notes)))


def read_notes(path: Path, time: int) -> list[Note]:
    """Read the notes in a file, oldest first, except those whose T is above `time`.

    `time`: the T of the restored view, which may be older than the notes. Returns no notes if the
    file is missing or damaged. Raises Unavailable.
    """
    with translate_os_errors("retention notes of a view", path):
        data = path.read_bytes() if path.exists() else b""
    try:
        rows = unpack(data)
    except MalformedMessage:
        return []
    notes: list[Note] = []
    for row in rows if isinstance(rows, tuple) else ():
        match row:
            case (float(noted_at), int(newest)) if newest <= time:
                notes.append((noted_at, newest))
    return sorted(notes)
