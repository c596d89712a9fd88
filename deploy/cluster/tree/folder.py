"""The tree of a cluster on one machine: a directory.

What is stored at a path is a file ``=NAME``: its version, and behind it the data. What is held has
a file ``=NAME.lock`` beside it, which the process that holds it keeps locked: the kernel lets go of
it when the process ends, in whatever way.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from driftline.coordinator.registry import FileRegistry, Registry
from driftline.deploy.cluster.tree.tree import FLOWS, NEW, Conflict, Entry, Masters, unchecked
from driftline.engine.durable import make_directory, replace_file, reported
from driftline.engine.errors import InUse, StateMismatch, Unavailable
from driftline.engine.locks import Lock

LOOK_EVERY_S = 0.25

HELD_S = 5.0
"""How long the process of a killed agent may take to end."""

WRITE_S = 10.0
"""How long others may take to write."""

_MARK, _LOCK = "=", ".lock"


class Folder:
    """The tree in a directory, which is made."""

    zookeeper = ""
    look_every_s = LOOK_EVERY_S

    def __init__(self, path: Path) -> None:
        self.where = f"registry {path}"
        self._path = path
        self._held: dict[str, Lock] = {}
        self._data: dict[str, bytes] = {}
        """What is held."""
        with self._reported():
            make_directory(path)

    def read(self, path: str) -> Entry | None:
        with self._reported():
            try:
                version, _, data = self._file(path).read_bytes().partition(b"\n")
            except FileNotFoundError:
                self._check()
                return None
        if not version.isdigit():
            raise StateMismatch(f"{self._file(path)} is damaged: it has no version")
        return Entry(data, int(version))

    def write(self, path: str, data: bytes, version: int) -> None:
        with self._alone():
            found = self.read(path)
            if (NEW if found is None else found.version) != version:
                raise Conflict(f"{self._file(path)}: another process has written it meanwhile")
            self._put(path, data, version + 1)

    def children(self, path: str) -> list[str]:
        with self._reported():
            try:
                names = os.listdir(self._path / path)
            except FileNotFoundError:
                self._check()
                return []
        found = {name.removeprefix(_MARK) for name in names if not name.endswith(_LOCK)}
        locks = [name for name in names if name.startswith(_MARK) and name.endswith(_LOCK)]
        held = {name[len(_MARK) : -len(_LOCK)] for name in locks}
        gone = {name for name in held if not self._is_held(f"{path}/{name}")}
        return sorted(name for name in found - gone if not name.startswith("."))

    def remove(self, path: str, check: Callable[[], None] = unchecked) -> None:
        with self._alone():
            check()
            self._file(path).unlink(missing_ok=True)
            at = self._path / path
            away = at.with_name(f".{at.name}-removed")
            shutil.rmtree(away, ignore_errors=True)  # of one that was killed here
            with suppress(FileNotFoundError):
                at.rename(away)
            shutil.rmtree(away, ignore_errors=True)

    def hold(self, path: str, data: bytes) -> None:
        if path not in self._held:
            taken = f"{path} in {self.where} belongs to another process: give another name"
            with self._reported():
                make_directory(self._file(path).parent)
                self._held[path] = Lock(self._lock(path), taken, wait_s=HELD_S)
        self._data[path] = data
        with self._reported():
            self._put(path, data, 0)

    def let_go(self, path: str) -> None:
        if path in self._held:
            self._file(path).unlink(missing_ok=True)
            self._held.pop(path).release()

    def holder(self) -> str:
        return ""

    def succeed(self, holder: str) -> None:
        """The kernel has let go of all that it held."""

    def renew(self) -> None:
        """Hold again what was removed, with the directory for example, once that is there again."""
        self._check()
        for path in list(self._held):
            if not self._lock(path).exists():
                self._held.pop(path).release()
                self.hold(path, self._data[path])
            elif not self._is_as_held(path):
                self.hold(path, self._data[path])

    def masters(self, flow: str, changed: Callable[[], None]) -> Masters:
        return _HeldMasters(self, f"{FLOWS}/{flow}/masters")

    def registry(self, flow: str) -> Registry:
        return FileRegistry(self.registry_file(flow))

    def registry_file(self, flow: str) -> Path:
        """Where the registry of a flow is."""
        return self._path / FLOWS / flow / "registry"

    def on_change(self, changed: Callable[[], None]) -> None:
        """Nobody tells of changes: see `look_every_s`."""

    def close(self) -> None:
        for path in list(self._held):
            self.let_go(path)

    def _check(self) -> None:
        if not self._path.is_dir():
            raise Unavailable(f"{self.where} is gone: put the directory back")

    def _file(self, path: str) -> Path:
        at = self._path / path
        return at.with_name(_MARK + at.name)

    def _lock(self, path: str) -> Path:
        file = self._file(path)
        return file.with_name(file.name + _LOCK)

    def _is_held(self, path: str) -> bool:
        if path in self._held:
            return True
        try:
            Lock(self._lock(path), "it is held").release()
        except InUse:
            return True
        except OSError:
            return False
        return False

    def _is_as_held(self, path: str) -> bool:
        try:
            found = self.read(path)
        except StateMismatch:
            return False
        return found is not None and found.data == self._data[path]

    def _put(self, path: str, data: bytes, version: int) -> None:
        file = self._file(path)
        make_directory(file.parent)
        replace_file(file, b"%d\n%b" % (version, data))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Write while nobody else does."""
        with self._reported():
            lock = Lock(self._path / ".lock", f"{self.where} is locked", wait_s=WRITE_S)
            try:
                yield
            finally:
                lock.release()

    def _reported(self) -> AbstractContextManager[None]:
        return reported("registry", self._path)


class _HeldMasters:
    """What masters hold beneath a path: there is one at a time, as it locks the registry."""

    def __init__(self, tree: Folder, path: str) -> None:
        self._tree = tree
        self._path = path

    def leader(self) -> tuple[str, str]:
        for process in self._tree.children(self._path):
            if (entry := self._tree.read(f"{self._path}/{process}")) is not None:
                return process, entry.data.decode(errors="replace")
        return "", ""

    def forget(self, process: str) -> None:
        """The kernel has told all by unlocking what it held."""

    def close(self) -> None:
        """Nothing is told."""
