"""Registry: the durable record of the coordinator's decisions.

The record holds everything that a new master must know. A write commits a snapshot, begins an
epoch or an incarnation, changes the layout, or ends a run. Each write names the version that it
replaces, so only one of two masters can continue. `FileRegistry` serves a single machine,
`ZooKeeperRegistry` several (`zookeeper.py`). `RegistryWriter` does the writes of one coordinator
one at a time. It retries a write while the registry is unavailable.
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import ClassVar, Protocol
from zlib import crc32

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from driftline.coordinator.identity import Identity
from driftline.engine.durable import Lock, make_directory, replace_file
from driftline.engine.errors import MalformedMessage, StateMismatch, Unavailable
from driftline.engine.flow.code import NO_CODE, Code
from driftline.engine.keygroups import Layout
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.role import IOJob


class SnapshotRecord(Struct, frozen=True, array_like=True):
    """A committed snapshot: the state as of `time`; front f resumes at `offsets[f]`.

    `incarnation`: the incarnation in which it was taken. `parts`: only under strong productions,
    for each node the number of its newest durable production when the snapshot was taken.
    `event_times`, `late`: see `engine.wire.messages.Prepared`; `late` is the sum over all nodes.
    """

    number: int
    time: int
    offsets: tuple[int, ...]
    incarnation: int = 0
    parts: tuple[int, ...] = ()
    event_times: tuple[tuple[int, int], ...] = ()
    late: int = 0


class RunOutcome(Struct, frozen=True, array_like=True):
    """Outcome of a run. `run`: its id; `error`: the name of the error class; `text`: for the user.

    `error` is empty unless the run failed. Here a run is one call of a command. The next call
    continues from the state that this call left.
    """

    run: str
    error: str
    text: str


class ClusterState(Struct, frozen=True, array_like=True):
    """Everything that must survive the master. At most two snapshots, the newest one first.

    `identity`: the text of the run's `Identity`. `version`: number of writes so far. `lineage`:
    token of this state over all calls of the command. `last_session`: number of the newest session
    (call of the command) that began an incarnation, and so had every directory open and durable
    (see `engine.storage.ownership`). `base`: the number of the oldest snapshot that a recovery can
    begin from: the savepoint at the start of the run, or the last snapshot before a rescaling; 0: a
    recovery can begin without a snapshot.
    `identity_details`: the identity, to report differences to another command. `code`: the code of
    the newest session; all incarnations from `code_from` on ran it. `output`: where the outputs of
    the newest session are; only a hint for messages, since directories may be moved; empty if
    unknown.
    """

    identity: str
    version: int = 0
    incarnation: int = 0
    snapshots: tuple[SnapshotRecord, ...] = ()
    outcome: RunOutcome | None = None
    """The outcome of the last run; None before its end. The first write of a master of the next
    run clears it."""
    lineage: str = ""
    last_session: int = 0
    base: int = 0
    identity_details: Identity | None = None
    code: Code = NO_CODE
    code_from: int = 0
    output: str = ""
    epoch: int = 0
    """Epoch of the last master that wrote. Each master begins a new epoch, which fences earlier
    masters: the registry and the members reject them."""
    leader: str = ""
    """Token of the process of the last master that wrote. With this token, two masters never write
    equal states, even if their decisions are equal."""
    layout: Layout = ()
    """The numbers of the nodes that run the flow; (): not decided yet. All snapshots have this
    layout."""

    def same_code(self, snapshot: SnapshotRecord) -> bool:
        """Return whether the newest session's code took this snapshot.

        If so, a replay from the snapshot reproduces the outputs that the consumer has. Otherwise
        other code produced some of these outputs.
        """
        return snapshot.incarnation >= self.code_from

    @property
    def late_elements(self) -> int:
        """Number of late elements that no sink receives, as of the newest snapshot."""
        return self.snapshots[0].late if self.snapshots else 0

    def next(self, **changes: object) -> ClusterState:
        """Return the next version of the record, with these fields changed."""
        return replace(self, version=self.version + 1, **changes)


class WriteState(IOJob, frozen=True):
    """Job: write `state` to the registry, in place of version `state.version - 1`. Result: None.

    `again`: an earlier attempt failed, but the registry may contain its state.
    """

    what: ClassVar[str] = "write the registry"

    state: ClusterState
    again: bool = False


REGISTRY_RETRY_S = 1.0
"""Seconds from a failed write to the next attempt."""


class RegistryWriter:
    """The writes of one coordinator; `leader`: token of its master's process, new at each start.

    Inputs: the states to write, the time, results of `WriteState`. Outputs: `WriteState` jobs.
    Invariants: a state is written only after the previous one, so on a full disk the run waits, as
    on a slow one. The first write of a coordinator also begins an epoch (`engine.wire.role`), which
    fences all earlier masters.

    A write that failed may still have reached the registry. So a retry is marked (`again`): the
    registry first reads the stored state. If it equals the state to write, the write has succeeded.
    """

    def __init__(self, leader: str) -> None:
        self._leader = leader
        self.retry_at = inf
        """When to retry the failed write (seconds, monotonic)."""
        self._job: WriteState | None = None
        self.is_epoch_written = False
        """Whether the registry has the epoch of this coordinator's master."""

    @property
    def in_progress(self) -> bool:
        """Whether a write is pending."""
        return self._job is not None

    def begin(self, state: ClusterState) -> WriteState:
        """Return the job that writes a state. Precondition: no write is in progress."""
        assert self._job is None, (
            "each write names the version that it replaces, so the previous write must end first"
        )
        if not self.is_epoch_written:
            state = replace(state, epoch=state.epoch + 1, leader=self._leader)
        self._job = WriteState(state)
        return self._job

    def due(self, now: float) -> list[WriteState]:
        """Return the job that retries a failed write, once it is due."""
        if self._job is None or now < self.retry_at:
            return []
        self.retry_at = inf
        self._job = replace(self._job, again=True)
        return [self._job]

    def process_result(self, job: IOJob, result: object, now: float) -> bool:
        """Process the result of a job. Return True if it ends the write in progress.

        Return False if the write has to be retried, or if the job is not this write.
        """
        if job is not self._job:
            return False
        if isinstance(result, Unavailable):
            self.retry_at = now + REGISTRY_RETRY_S
            return False
        self._job = None
        self.is_epoch_written |= result is None
        return True


LOCK_TIMEOUT_S = 10.0
"""Maximum wait in seconds for another process that holds the lock while it writes."""


class Registry(Protocol):
    """Stores the cluster's state."""

    def read(self) -> ClusterState | None:
        """Return the state, or None if none was written. Raises Unavailable, StateMismatch."""

    def write(self, state: ClusterState, *, again: bool = False) -> None:
        """Replace version `state.version - 1` durably. With `again`, do nothing if the registry
        already holds `state`.

        Raises StateMismatch if the registry holds another version, which another master or a
        command wrote. Raises Unavailable, and PayloadError if the state is too large.
        """


OTHER_RUN_ADVICE = "give another --output (and another --state, if you set one)"
"""How to begin another run."""

FRESH_START_ADVICE = "start over with --fresh, which removes the state and the outputs"
"""How to start over, if the run can produce everything again that this removes."""


def check_identity(
    state: ClusterState | None,
    identity: str,
    where: str,
    details: Identity | None = None,
    start_over_advice: str = FRESH_START_ADVICE,
    other_run_advice: str = OTHER_RUN_ADVICE,
) -> ClusterState:
    """Return the state to continue from: `state`, or if it is None a new one of this identity.

    `where`: the place of the state, for the error; `details`: the complete identity, so that the
    error names the differences; `start_over_advice`, `other_run_advice`: what to do, for the error.
    Raises StateMismatch if the state has another identity.
    """
    if state is None:
        return ClusterState(identity, identity_details=details)
    if state.identity != identity:
        differences = (
            details.differences(state.identity_details)
            if details and state.identity_details
            else []
        )
        lines = "".join(f"\n  {text}" for text in differences or ["the flow is different"])
        raise StateMismatch(
            f"{where} holds the state of another run, or of this flow before a change:{lines}\n"
            "To continue that run, give its flow and options again. To start a changed flow from "
            "its state, write a savepoint with `driftline savepoint`, and give it with "
            "--from-savepoint and another --output. For another run "
            f"{other_run_advice}, or {start_over_advice}"
        )
    return state


def may_replace(state: ClusterState, current: ClusterState | None, *, again: bool) -> bool:
    """Return whether `state` may replace `current`; `again`: `current` may be the same state.

    Each master signs its first write (`leader`), and each write names the previous version, so no
    two masters write the same state. A stored state that equals this master's attempt is its own
    write.
    """
    if again and current is not None and encode_state(current) == encode_state(state):
        return True
    return (current.version if current is not None else 0) == state.version - 1


class FileRegistry:
    """Embedded registry: one file, replaced atomically.

    Another process may write at the same time as the master. So the writer holds a lock, on a
    second file, from the check of the version to the end of the write.
    """

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

    def write(self, state: ClusterState, *, again: bool = False) -> None:
        lock_path = self._path.with_name(f"{self._path.name}.lock")
        try:
            make_directory(self._path.parent)
            in_use_text = f"registry {self._path}: another process is writing it"
            lock = Lock(lock_path, in_use_text, wait_s=LOCK_TIMEOUT_S)
            try:
                if not may_replace(state, self.read(), again=again):
                    raise StateMismatch(
                        f"registry {self._path}: it was written by another master or a `cancel`"
                    )
                replace_file(self._path, encode_state(state))
            finally:
                lock.release()
        except OSError as error:
            raise Unavailable(
                f"registry in directory {self._path.parent}: {error.strerror}"
            ) from None


_FORMAT = 7


def encode_state(state: ClusterState) -> bytes:
    """Encode a state, with a checksum."""
    data = pack((_FORMAT, msgspec.to_builtins(state)))
    return crc32(data).to_bytes(4, "big") + data


def decode_state(data: bytes, where: str) -> ClusterState:
    """Decode the result of `encode_state`. `where`: the file or znode, for errors.

    Raises StateMismatch if the data is damaged, or was written by another version of Driftline.
    """
    if crc32(data[4:]).to_bytes(4, "big") != data[:4]:
        raise StateMismatch(
            f"registry {where} is damaged. Restore it together with the outputs and the rest of "
            "its directory, from copies of the same moment. Without the registry Driftline "
            "cannot check whether they fit together. To start over, remove all of them"
        )
    try:
        version, state = msgspec.convert(unpack(data[4:]), tuple[int, ClusterState])
    except (MalformedMessage, msgspec.ValidationError):
        version = 0
    if version != _FORMAT:
        raise StateMismatch(f"registry {where} was written by another version of Driftline")
    return state
