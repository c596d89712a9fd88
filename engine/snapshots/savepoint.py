"""Savepoints: the state of a flow as files, to begin a run from, to inspect, or to keep.

    DIR/manifest.json         the flow, T, and size and checksum of every file
    DIR/00017-3.segment       the state of vertex 3 of the flow for key group 17

It is the state after all elements with times below T, computed by nodes or by a batch run over
history. For the form of a segment see `engine.state.changelog`. The manifest is written last and
names all files: a directory without one is no savepoint, and damaged or missing files are noticed.
A run that begins from a savepoint counts outputs below T as delivered (t_last is T - 1); its
checksum over outputs begins at 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from zlib import crc32

from driftline.engine.durable import replace_file
from driftline.engine.errors import SnapshotDamaged, StateMismatch, Unavailable
from driftline.engine.flow.flow import Flow, Vertex
from driftline.engine.flow.plan import plan
from driftline.engine.keygroups import GroupCache
from driftline.engine.snapshots.merging import as_segment
from driftline.engine.state.table import StateTable

_FORMAT = "driftline savepoint 2"
_MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A complete savepoint; `groups`: number of key groups, `time`: T."""

    path: Path
    flow: str
    """Identity of the flow's plan."""
    groups: int
    time: int
    files: Mapping[str, tuple[int, int]]
    """Name of a file -> (bytes, checksum)"""

    def segment(self, group: int, vertex: int) -> bytes:
        """The state of a vertex for a key group; empty if it has none. Raises SnapshotDamaged."""
        name = _name(group, vertex)
        if name not in self.files:
            return b""
        size, checksum = self.files[name]
        try:
            data = (self.path / name).read_bytes()
        except OSError as error:
            raise SnapshotDamaged(f"savepoint {self.path}: {name}: {error.strerror}") from None
        if len(data) != size or crc32(data) != checksum:
            raise SnapshotDamaged(f"savepoint {self.path}: {name} is damaged")
        return data

    def segments(self, flow: Flow, group: int) -> bytes:
        """The state of all vertices for a key group, as one segment. Raises SnapshotDamaged."""
        keyed = [vertex.number for vertex in flow.vertices if vertex.keyed]
        return b"".join(self.segment(group, vertex) for vertex in keyed)

    def check_flow(self, flow: Flow) -> None:
        """Raises StateMismatch if the savepoint was made by a flow with another plan."""
        if (self.flow, self.groups) != (plan(flow).identity(), flow.groups):
            raise StateMismatch(
                f"savepoint {self.path} holds the state of another flow than {flow.name!r}, or of "
                "another version of it: its operators or their states are not the same"
            )


def open_savepoint(path: Path) -> Savepoint:
    """The savepoint in a directory. Raises Unavailable, SnapshotDamaged."""
    try:
        text = (path / _MANIFEST).read_text(errors="replace")
    except OSError as error:
        raise Unavailable(f"{path} is no savepoint: {_MANIFEST}: {error.strerror}") from None
    try:
        about = json.loads(text)
        if about.pop("format") != _FORMAT or about.pop("checksum") != _checksum(about):
            raise ValueError("its checksum does not fit, or it is of another version")
        files = {name: (size, checksum) for name, (size, checksum) in about.pop("files").items()}
        return Savepoint(path, files=files, **about)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SnapshotDamaged(f"savepoint {path}: {_MANIFEST} is damaged: {error}") from None


def write_segment(path: Path, group: int, vertex: int, segment: bytes) -> None:
    """Write one file of a savepoint, atomically; a retry writes the same. Raises Unavailable."""
    with _reported(path):
        replace_file(path / _name(group, vertex), segment)


def write_table(path: Path, vertex: Vertex, table: StateTable, groups: GroupCache) -> None:
    """Write the state of a vertex, a file for each key group that has some. Raises Unavailable."""
    keys_of_group: dict[int, list[object]] = {}
    for key in table:
        keys_of_group.setdefault(groups[key], []).append(key)
    for group, keys in keys_of_group.items():
        if segment := as_segment(vertex.name, table, keys):
            write_segment(path, group, vertex.number, segment)


def complete(path: Path, flow: Flow, time: int) -> Savepoint:
    """Make a savepoint as of `time` of the files in `path`, by its manifest. Raises Unavailable."""
    files = {}
    for file in sorted(path.glob("*.segment")):
        data = file.read_bytes()
        files[file.name] = (len(data), crc32(data))
    savepoint = Savepoint(path, plan(flow).identity(), flow.groups, time, files)
    about = {name: value for name, value in asdict(savepoint).items() if name != "path"}
    text = json.dumps({"format": _FORMAT, **about, "checksum": _checksum(about)}, indent=1)
    with _reported(path):
        replace_file(path / _MANIFEST, text.encode())
    return savepoint


def begin(path: Path) -> None:
    """Make the directory of a savepoint. Raises StateMismatch if it holds files, Unavailable."""
    with _reported(path):
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise StateMismatch(f"{path} is not empty: give another directory for the savepoint")


def _name(group: int, vertex: int) -> str:
    return f"{group:05}-{vertex}.segment"


def _checksum(about: Mapping[str, object]) -> int:
    return crc32(json.dumps(about, sort_keys=True).encode())


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"savepoint {path}: {error.strerror}") from None
