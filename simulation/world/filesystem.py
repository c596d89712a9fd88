"""A file system that loses power: data that were not synced may be gone, torn, or intact.

`FileSystem` replaces the writing functions of `os`, lets calls fail or crash the process, and
remembers the durable data below one directory: the content of each file as of its last fdatasync,
and the names in each directory as of its last fsync. Nothing is synced to the real disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

_ORIGINALS: Mapping[str, Callable[..., object]] = {
    name: getattr(os, name) for name in ("pwrite", "ftruncate", "fdatasync", "fsync", "replace")
}
_pwrite, _ftruncate, _replace = os.pwrite, os.ftruncate, os.replace


class FileSystem:
    """Files below one directory. As a context manager, it replaces the functions of `os`."""

    def __init__(
        self, root: Path, rng: Random, draw_error: Callable[[], BaseException | None]
    ) -> None:
        """`draw_error`: called for each operation; the operation raises the returned error, if any.

        A failed operation may have been executed fully, in part, or not at all.
        """
        self.root = root
        self.rng = rng
        self._draw_error = draw_error
        self._durable: dict[int, bytes] = {}
        """Inode -> durable content."""
        self._names: dict[Path, dict[str, int]] = {}
        """Directory -> durable name -> inode."""
        self._pins: list[int] = []
        """Descriptors of files that are kept open (see `_pin`)."""
        self._replacements: dict[str, Callable[..., object]] = {
            "pwrite": self._write,
            "ftruncate": self._truncate,
            "fdatasync": self._sync,
            "fsync": self._sync_names,
            "replace": self._rename,
        }
        """Name of a function of `os` -> its replacement."""

    def __enter__(self) -> Self:
        for name, function in self._replacements.items():
            setattr(os, name, function)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name, function in _ORIGINALS.items():
            setattr(os, name, function)

    def close(self) -> None:
        """Close all pinned files."""
        for pin in self._pins:
            os.close(pin)
        self._pins.clear()

    def lose_power(self) -> None:
        """Change the files as a power failure may: durable data stay, other data may be lost."""
        for directory, names in self._names.items():
            files = {file.name: file for file in directory.iterdir() if file.is_file()}
            keeps_names = self.rng.random() < 0.5
            contents = {name: self._draw_content(file) for name, file in sorted(files.items())}
            if not keeps_names:
                contents = {
                    name: self._draw_content(files[name])
                    if name in files and files[name].stat().st_ino == inode
                    else self._durable.get(inode, b"")
                    for name, inode in names.items()
                }
            for file in files.values():
                if file.suffix != ".lock":
                    file.unlink()
            for name, content in contents.items():
                if not name.endswith(".lock"):
                    file = directory / name
                    file.write_bytes(content)
                    self._durable[file.stat().st_ino] = content
                    self._pin(file)
            self._names[directory] = _inodes(directory)

    def _draw_content(self, file: Path) -> bytes:
        """Draw the content of a file after a power failure.

        If the file only grew since its last sync, keep all of the new data, a beginning, or a
        beginning followed by zeros. If durable data were changed, keep all changes or none.
        """
        content = file.read_bytes()
        durable = self._durable.get(file.stat().st_ino, b"")
        if not content.startswith(durable):
            return self.rng.choice((content, durable))
        cut = self.rng.randint(len(durable), len(content))
        zeros = bytes(len(content) - cut)
        return self.rng.choice((content, content[:cut], content[:cut] + zeros))

    def _draw_execution(self, error: BaseException | None) -> bool:
        """Return whether to execute an operation: always without an `error`, else at random."""
        return error is None or self.rng.random() < 0.5

    # Replacements of the functions of `os`.

    def _write(self, file: int, data: bytes, offset: int) -> int:
        error = self._draw_error()
        if error is not None:
            _pwrite(file, data[: self.rng.randint(0, len(data))], offset)
            raise error
        return _pwrite(file, data[: self.rng.randint(1, len(data))], offset)

    def _truncate(self, file: int, length: int) -> None:
        error = self._draw_error()
        if self._draw_execution(error):
            _ftruncate(file, length)
        if error is not None:
            raise error

    def _sync(self, file: int) -> None:
        error = self._draw_error()
        if self._draw_execution(error):
            path = _path(file)
            self._pin(path)
            self._durable[os.fstat(file).st_ino] = path.read_bytes()
        if error is not None:
            raise error

    def _sync_names(self, file: int) -> None:
        error = self._draw_error()
        directory = _path(file)
        if directory == self.root or self.root in directory.parents:
            self._names.setdefault(directory, {})
            if self._draw_execution(error):
                self._names[directory] = _inodes(directory)
        if error is not None:
            raise error

    def _rename(self, old: Path, new: Path) -> None:
        error = self._draw_error()
        if self._draw_execution(error):
            _replace(old, new)
        if error is not None:
            raise error

    def _pin(self, file: Path) -> None:
        """Keep a file open, so that its inode number is not reused."""
        self._pins.append(os.open(file, os.O_RDONLY))


def _inodes(directory: Path) -> dict[str, int]:
    return {entry.name: entry.stat().st_ino for entry in directory.iterdir() if entry.is_file()}


def _path(file: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{file}"))
