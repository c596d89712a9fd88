"""Checkpoints of views: files from which a view restarts, to read only the rest of the journal.

A view can always be made anew from the journal, as far as that is retained. So a checkpoint that is
damaged, or of another run, is told of, and not used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from driftline.engine.durable import reported, sync_directory, write_at
from driftline.engine.errors import SnapshotDamaged
from driftline.engine.events import about as event
from driftline.engine.events import log
from driftline.serve.journal.frames import HEAD_BYTES, framed, payload_at
from driftline.serve.views.view import View

_END = b""
"""The last frame: a file without it is not whole."""

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
