"""Disk that can be made slow: a file system that is frozen most of the time.

The consumer of `driftline run` writes its outputs there, so it becomes a slow consumer. Needs root.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

BYTES = 4 << 30
"""Size of the file system; the file behind it is sparse."""

FROZEN_S, THAWED_S = 0.9, 0.1


def may_be_made() -> bool:
    """Return whether this process may mount a file system."""
    return os.geteuid() == 0 and Path("/dev/loop-control").exists()


@contextmanager
def slow_disk(folder: Path) -> Iterator[SlowDisk]:
    """Mount a file system on a new folder."""
    image = folder.with_suffix(".image")
    with image.open("wb") as file:
        file.truncate(BYTES)
    folder.mkdir()
    _call("mkfs.ext4", "-q", image)
    _call("mount", "-o", "loop", image, folder)
    disk = SlowDisk(folder)
    try:
        yield disk
    finally:
        disk.over.set()
        disk.join()
        _call("umount", "-l", folder)
        image.unlink()


class SlowDisk:
    """Mounted file system that can be slowed down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.over = Event()
        self._thread: Thread | None = None

    def slow_down(self, seconds: float) -> None:
        """Freeze the disk nine tenths of the time for `seconds`, in a thread."""
        self._thread = Thread(target=self._freeze, args=(seconds,), daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the disk is as fast as before."""
        if self._thread is not None:
            self._thread.join()

    def _freeze(self, seconds: float) -> None:
        for _ in range(round(seconds / (FROZEN_S + THAWED_S))):
            _call("fsfreeze", "-f", self.folder)
            self.over.wait(FROZEN_S)
            _call("fsfreeze", "-u", self.folder)
            if self.over.wait(THAWED_S):
                return


def _call(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)
