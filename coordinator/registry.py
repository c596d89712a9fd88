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

from engine.codec import pack, unpack
from engine.durable import make_directory, replace_file
from engine.errors import StateMismatch, Unavailable
from engine.party import Job


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A committed snapshot: the state as of `time`; front f goes on from `offsets[f]`."""

    number: int
    time: int
    offsets: tuple[int, ...]


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
    """Everything that must survive the master. At most two snapshots, the last one first."""

    identity: str
    version: int = 0
    incarnation: int = 0
    snapshots: tuple[SnapshotRecord, ...] = ()
    outcome: RunOutcome | None = None
    """Of the run that wrote this, if that is over."""

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
            f"{where} holds the state of another flow, input, policy or number of nodes: "
            "give another --state directory, or remove this one"
        )
    return state


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


_FORMAT = 2


def encode_state(state: ClusterState) -> bytes:
    """The bytes of a state, with a checksum."""
    snapshots = [(s.number, s.time, s.offsets) for s in state.snapshots]
    ended = state.outcome
    outcome = None if ended is None else (ended.run, ended.error, ended.text)
    data = pack((_FORMAT, state.identity, state.version, state.incarnation, snapshots, outcome))
    return crc32(data).to_bytes(4, "big") + data


def decode_state(data: bytes, where: str) -> ClusterState:
    """What `encode_state` made. Raises StateMismatch if it is damaged."""
    if crc32(data[4:]).to_bytes(4, "big") != data[:4]:
        raise StateMismatch(f"registry {where} is damaged: restore it, or remove it to begin anew")
    parts = unpack(data[4:])
    assert isinstance(parts, tuple), "what the checksum covers, we have written"
    if parts[0] != _FORMAT:
        raise StateMismatch(f"registry {where} was written by another version of Driftline")
    _, identity, version, incarnation, snapshots, outcome = parts
    return ClusterState(
        identity,
        version,
        incarnation,
        tuple(SnapshotRecord(*record) for record in snapshots),
        None if outcome is None else RunOutcome(*outcome),
    )
