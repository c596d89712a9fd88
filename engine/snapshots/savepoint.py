"""Savepoints: the state of a flow as files, to start a run from, to inspect, or to archive.

    DIR/manifest.json                    the flow, T, and size and checksum of every file
    DIR/00017-totals-3fa2c1d0.segment    the state of operator `totals` for key group 17

A savepoint is the state after all elements with times below T. Nodes write it, or a batch run over
history. `engine.state.changelog` defines the form of a segment. The manifest is written last and
names all files. A directory without a manifest is not a savepoint; damaged or missing files are
detected.
The files do not contain their location, and reading does not change them: a savepoint may be moved,
copied, and used by any number of runs at the same time.
A run that starts from a savepoint counts outputs below T as delivered (t_last is T - 1); the
running checksum of its outputs starts at 0.

The name of an operator identifies its state. So a flow with added or removed operators can start
from the savepoint, too (`engine.snapshots.savepoint_mapping`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from zlib import crc32

from msgspec import Struct, field
from msgspec.structs import astuple

from driftline.engine.durable import replace_file, translate_os_errors
from driftline.engine.errors import SnapshotDamaged, StateMismatch, Unavailable
from driftline.engine.event_time import NEVER
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.outline import OperatorOutline, Outline, make_outline
from driftline.engine.flow.plan import make_plan
from driftline.engine.keygroups import GroupCache
from driftline.engine.operators.operator import Vertex
from driftline.engine.snapshots.merging import encode_segment
from driftline.engine.state.table import StateTable

_FORMAT = "driftline savepoint 6"
_MANIFEST = "manifest.json"


class Savepoint(Struct, frozen=True):
    """Complete savepoint; `time`: T, the smallest time that the savepoint does not contain."""

    path: Path
    plan: str
    """Identity of the flow's plan (`Plan.identity`)."""
    groups: int
    """Number of key groups."""
    time: int
    files: Mapping[str, tuple[int, int]]
    """Name of a file -> (size in bytes, checksum)."""
    flow_outline: Outline
    """Outline of the flow."""
    inputs: Mapping[str, bool] = field(default_factory=dict)
    """Source -> whether its records are numbered from 1; sources for which it is unknown are
    omitted."""
    event_times: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Source -> (largest event time, status) as of `time` (`engine.event_time.Clock.as_of`); {} if
    the flow needs no event times."""
    last_records: Mapping[str, int] = field(default_factory=dict)
    """Source -> number of its last record before `time`; sources for which it is unknown are
    omitted. It is smaller than `time` - 1 if other sources had more records."""

    def event_times_of(self, flow: Flow) -> tuple[tuple[int, int], ...]:
        """Return (largest event time, status) of each of a flow's sources, as of `time`.

        A source that the savepoint lacks has NEVER. Return () if the savepoint has no event times.
        """
        times = self.event_times
        return tuple(times.get(each.name, (NEVER, 0)) for each in flow.sources) if times else ()

    @property
    def title(self) -> str:
        """Name and time; part of a run's identity (`starts_from_savepoint`)."""
        return f"{self.path.name} at {self.time}"

    def segment(self, group: int, operator: str) -> bytes:
        """Return the state of an operator for a key group; b"" if it has none.

        Raises SnapshotDamaged.
        """
        name = _name(group, operator)
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

    def holds(self, operator: str) -> bool:
        """Return whether the savepoint has any state of an operator."""
        return any(_name(group, operator) in self.files for group in range(self.groups))

    def check_flow(self, flow: Flow) -> None:
        """Raise StateMismatch if the flow has another plan, or another number of key groups."""
        if (self.plan, self.groups) != (make_plan(flow).identity(), flow.groups):
            lines = "".join(
                f"\n  {text}" for text in make_outline(flow).differences(self.flow_outline)
            )
            raise StateMismatch(
                f"savepoint {self.path} does not hold the state of flow {flow.name!r} as it is "
                f"now:{lines}\n`driftline run --from-savepoint` can start from this savepoint with "
                "other operators; a savepoint of that run then fits"
            )


def starts_from_savepoint(identity: str, time: int) -> bool:
    """Return whether a run with this identity starts from a savepoint as of `time`."""
    return re.search(rf"\|from [^|]* at {time}$", identity) is not None


def open_savepoint(path: Path) -> Savepoint:
    """Open the savepoint in a directory. Raises Unavailable, SnapshotDamaged."""
    try:
        text = (path / _MANIFEST).read_text(errors="replace")
    except OSError as error:
        raise Unavailable(f"{path} is not a savepoint: {_MANIFEST}: {error.strerror}") from None
    try:
        manifest = json.loads(text)
        version, checksum = manifest.pop("format"), manifest.pop("checksum")
        if version != _FORMAT or checksum != _checksum(manifest):
            raise ValueError("its checksum is wrong, or another version of Driftline wrote it")
        files = {name: (size, crc) for name, (size, crc) in manifest["files"].items()}
        groups, time = manifest["groups"], manifest["time"]
        operators = tuple(
            OperatorOutline(
                name, kind, tuple(inputs), tuple((type_, state) for type_, state in states)
            )
            for name, kind, inputs, states in manifest["operators"]
        )
        outline = Outline(manifest["flow"], groups, operators)
        event_times = {
            name: (event_time, status)
            for name, (event_time, status) in manifest["event_times"].items()
        }
        plan, inputs, last_records = (manifest[k] for k in ("plan", "inputs", "last_records"))
        return Savepoint(
            path, plan, groups, time, files, outline, inputs, event_times, last_records
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SnapshotDamaged(f"savepoint {path}: {_MANIFEST} is damaged: {error}") from None


def write_segment(path: Path, group: int, operator: str, segment: bytes) -> None:
    """Write one file of a savepoint atomically, so that a retry is safe. Raises Unavailable."""
    with translate_os_errors("savepoint", path):
        replace_file(path / _name(group, operator), segment)


def write_table(path: Path, vertex: Vertex, table: StateTable, groups: GroupCache) -> None:
    """Write the state of a vertex, one file for each key group with state. Raises Unavailable."""
    keys_of_group: dict[int, list[object]] = {}
    for key in table:
        keys_of_group.setdefault(groups[key], []).append(key)
    for group, keys in keys_of_group.items():
        if segment := encode_segment(vertex.name, table, keys):
            write_segment(path, group, vertex.name, segment)


def write_manifest(
    path: Path,
    flow: Flow,
    time: int,
    inputs: Mapping[str, bool] | None = None,
    event_times: Sequence[tuple[int, int]] = (),
    last_records: Mapping[str, int] | None = None,
) -> Savepoint:
    """Complete the savepoint as of `time` in `path`: write its manifest. Raises Unavailable.

    `inputs`, `last_records`: see `Savepoint`; `event_times`: (largest event time, status) of each
    source as of `time`, or () if the flow needs none.
    """
    files = {}
    for file in sorted(path.glob("*.segment")):
        data = file.read_bytes()
        files[file.name] = (len(data), crc32(data))
    outline = make_outline(flow)
    savepoint = Savepoint(
        *(path, make_plan(flow).identity(), flow.groups, time, files, outline, dict(inputs or {})),
        event_times=dict(zip([source.name for source in flow.sources], event_times, strict=False)),
        last_records=dict(last_records or {}),
    )
    manifest = {
        "flow": outline.flow,
        "plan": savepoint.plan,
        "groups": savepoint.groups,
        "time": time,
        "operators": [astuple(operator) for operator in outline.operators],
        "inputs": savepoint.inputs,
        "event_times": savepoint.event_times,
        "last_records": savepoint.last_records,
        "files": files,
    }
    whole = {"format": _FORMAT, **manifest, "checksum": _checksum(manifest)}
    with translate_os_errors("savepoint", path):
        replace_file(path / _MANIFEST, json.dumps(whole, indent=1).encode())
    return savepoint


def create_savepoint_directory(path: Path) -> None:
    """Create the directory of a savepoint, or accept an empty one.

    Raises StateMismatch if the directory is not empty, and Unavailable.
    """
    with translate_os_errors("savepoint", path):
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise StateMismatch(
                f"{path} is not empty: give an empty or new directory for the savepoint"
            )


def _name(group: int, operator: str) -> str:
    """Return the name of a segment file, which is unique on case-insensitive file systems, too."""
    readable = re.sub(r"[^a-z0-9_]+", "-", operator.lower())[:40]
    digest = blake2b(operator.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{group:05}-{readable}-{digest}.segment"


def _checksum(manifest: Mapping[str, object]) -> int:
    return crc32(json.dumps(manifest, sort_keys=True).encode())
