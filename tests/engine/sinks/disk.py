"""A disk that loses power: what is not synced may be gone, torn, or there.

Watches the calls that write, and keeps what is durable: the content of a file as of its last
fdatasync, the names in a directory as of its last fsync. `fail_at` lets the n-th call from now
fail, half done.
"""

import os
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self
from unittest.mock import patch

_pwrite, _fdatasync, _fsync, _rename = os.pwrite, os.fdatasync, os.fsync, os.rename


class PowerLoss(Exception):
    """The process is gone."""


class Disk:
    """Everything below one directory."""

    def __init__(self, root: Path, chance: Random) -> None:
        self.root = root
        self.chance = chance
        self.error: Exception | None = None
        self.calls = 0
        self._fail_at = -1
        self._durable: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        self._pins: list[int] = []
        self._patches = patch.multiple(
            os,
            pwrite=self._on_write,
            fdatasync=self._on_sync,
            fsync=self._on_sync_names,
            rename=self._on_rename,
        )

    def __enter__(self) -> Self:
        self._patches.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._patches.stop()
        for pin in self._pins:
            os.close(pin)

    def fail_at(self, call: int, error: Exception | None) -> None:
        """Let a call fail, 0 is the next one; the one after it works again."""
        self._fail_at = self.calls + call
        self.error = error

    def lose_power(self) -> None:
        """Leave on the disk what a power failure may leave."""
        for directory, names in self._names.items():
            now = {file.name: file for file in directory.iterdir() if file.is_file()}
            keep_names = self.chance.random() < 0.5
            contents = {name: self._content(file) for name, file in now.items()}
            if not keep_names:
                contents = {
                    name: self._content(now[name])
                    if name in now and now[name].stat().st_ino == inode
                    else self._durable.get(inode, b"")
                    for name, inode in names.items()
                }
            for file in now.values():
                if file.suffix != ".lock":
                    file.unlink()
            for name, content in contents.items():
                if not name.endswith(".lock"):
                    file = directory / name
                    file.write_bytes(content)
                    self._durable[file.stat().st_ino] = content
                    self._pin(file)
            self._names[directory] = {
                file.name: file.stat().st_ino for file in directory.iterdir() if file.is_file()
            }

    def _content(self, file: Path) -> bytes:
        now = file.read_bytes()
        durable = self._durable.get(file.stat().st_ino, b"")
        if not now.startswith(durable):
            return self.chance.choice((now, durable))
        cut = self.chance.randint(len(durable), len(now))
        return self.chance.choice((now, now[:cut], now[:cut] + bytes(len(now) - cut)))

    def _failing(self) -> bool:
        self.calls += 1
        return self.error is not None and self.calls - 1 == self._fail_at

    def _on_write(self, file: int, data: bytes, offset: int) -> int:
        if self._failing():
            _pwrite(file, data[: self.chance.randint(0, len(data))], offset)
            raise self._error()
        return _pwrite(file, data[: self.chance.randint(1, len(data))], offset)

    def _on_sync(self, file: int) -> None:
        fails = self._failing()
        if not fails or self.chance.random() < 0.5:
            self._pin(_path(file))
            self._durable[os.fstat(file).st_ino] = _path(file).read_bytes()
        if fails:
            raise self._error()

    def _on_sync_names(self, file: int) -> None:
        fails = self._failing()
        directory = _path(file)
        if directory == self.root or self.root in directory.parents:
            self._names.setdefault(directory, {})
            if not fails or self.chance.random() < 0.5:
                self._names[directory] = {
                    entry.name: entry.stat().st_ino
                    for entry in directory.iterdir()
                    if entry.is_file()
                }
        if fails:
            raise self._error()

    def _on_rename(self, old: Path, new: Path) -> None:
        fails = self._failing()
        if not fails or self.chance.random() < 0.5:
            _rename(old, new)
        if fails:
            raise self._error()

    def _error(self) -> Exception:
        assert self.error is not None
        return self.error

    def _pin(self, file: Path) -> None:
        """The number of an inode must not be used again."""
        self._pins.append(os.open(file, os.O_RDONLY))


def _path(file: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{file}"))
