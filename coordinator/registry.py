"""The registry: where the coordinator's decisions are kept, and who may change them.

One record holds everything that a new master must know. Writing it is the commit of a snapshot,
the fence of an incarnation, and the end of a run: a write names the version that it follows, so
that of two masters only one can go on. `FileRegistry` serves a single machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol
from zlib import crc32

from driftline.engine.durable import make_directory, replace_file
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.party import Job


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A committed snapshot: the state as of `time`; front f goes on from `offsets[f]`.

    `taken`: the incarnation that it was taken in. `parts`: under strong productions, for each node
    the production that it had made durable by then.
    """

    number: int
    time: int
    offsets: tuple[int, ...]
    taken: int = 0
    parts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended; `error` is empty when it did what was asked.

    A run is one call of a command: the next one goes on from what this one has left.
    """

    run: str
    error: str
    text: str


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Everything that must survive the master. At most two snapshots, the last one first.

    `lineage` is the token of the run (see `engine.wire.marks`), `opened` the last of its sessions
    in which there was an incarnation: by then every directory was open and durable. `base`: the
    number of the snapshot that the run began from, before which there is nothing to go back to.
    """

    identity: str
    version: int = 0
    incarnation: int = 0
    snapshots: tuple[SnapshotRecord, ...] = ()
    outcome: RunOutcome | None = None
    """Of the run that wrote this, if that is over."""
    lineage: str = ""
    opened: int = 0
    base: int = 0

    def next(self, **changes: object) -> ClusterState:
        """The next version."""
        return replace(self, version=self.version + 1, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class WriteState(Job):
    """Replace the version before `state.version` by it, durably. Result: None."""

    state: ClusterState


class Registry(Protocol):
    """Where the cluster's state is kept."""

    def read(self) -> ClusterState | None:
        """The state, or None if there is none. Raises Unavailable, StateMismatch."""

    def write(self, state: ClusterState) -> None:
        """Replace the version before it. Raises Unavailable, and StateMismatch if another wrote."""


def check_identity(state: ClusterState | None, identity: str, where: str) -> ClusterState:
    """The state to go on from, which must be of this flow. Raises StateMismatch."""
    if state is None:
        return ClusterState(identity)
    if state.identity != identity:
        raise StateMismatch(
            f"{where} holds the state of a run with {_difference(state.identity, identity)}: give "
            "another --output (and --state, if you do), or go on with the run as it was"
        )
    return state


def _difference(theirs: str, ours: str) -> str:
    """In which parts two identities differ, for people."""
    names = ("another flow, or another version of it", "policy", "number of nodes")
    told = []
    one, other = theirs.split("|", 3), ours.split("|", 3)
    for name, a, b in zip((*names, "input"), one, other, strict=False):
        if a != b:
            told.append(name if name == names[0] else f"{name} {a!r} instead of {b!r}")
    return ", ".join(told) or "another identity"


class FileRegistry:
    """The embedded registry: one file, replaced atomically."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> ClusterState | None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(f"registry {self._path}: {error.strerror}") from None
        return decode_state(data, str(self._path))

    def write(self, state: ClusterState) -> None:
        found = self.read()
        if (found.version if found else 0) != state.version - 1:
            raise StateMismatch(f"registry {self._path}: another master has taken over")
        try:
            make_directory(self._path.parent)
            replace_file(self._path, encode_state(state))
        except OSError as error:
            raise Unavailable(f"registry {self._path}: {error.strerror}") from None


_FORMAT = 3


def encode_state(state: ClusterState) -> bytes:
    """The bytes of a state, with a checksum."""
    snapshots = [(s.number, s.time, s.offsets, s.taken, s.parts) for s in state.snapshots]
    ended = state.outcome
    outcome = None if ended is None else (ended.run, ended.error, ended.text)
    about = outcome, state.lineage, state.opened, state.base
    data = pack((_FORMAT, state.identity, state.version, state.incarnation, snapshots, about))
    return crc32(data).to_bytes(4, "big") + data


def decode_state(data: bytes, where: str) -> ClusterState:
    """What `encode_state` made. Raises StateMismatch if it is damaged."""
    if crc32(data[4:]).to_bytes(4, "big") != data[:4]:
        raise StateMismatch(
            f"registry {where} is damaged: restore it together with what else is in its directory "
            "and the outputs. Without it nobody knows which of them fit together: to begin anew, "
            "remove all of them"
        )
    parts = unpack(data[4:])
    assert isinstance(parts, tuple), "what the checksum covers, we have written"
    if parts[0] != _FORMAT:
        raise StateMismatch(f"registry {where} was written by another version of Driftline")
    _, identity, version, incarnation, snapshots, (outcome, *run) = parts
    records = tuple(SnapshotRecord(*record) for record in snapshots)
    ended = None if outcome is None else RunOutcome(*outcome)
    return ClusterState(identity, version, incarnation, records, ended, *run)
