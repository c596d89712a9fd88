"""Small file system that a test can fill and free again. Needs root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BYTES = 16 << 20


class SmallDisk:
    """Mounted small file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Fill the disk."""
        with self._ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        assert not os.statvfs(self.folder).f_bavail

    def make_room(self) -> None:
        """Free the space that `fill` took."""
        self._ballast.unlink()


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk | None]:
    """Mount a disk on a new folder; yield None if this process may not mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
