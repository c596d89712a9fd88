"""Rescaling: changes the number of nodes (the layout) of a run, while it continues.

Inputs: requests (`Rescale`), `Hello` and `Joined` of the nodes of the next layout, `Paused` of
fronts, committed snapshots, the progress of the run, and the time. Outputs: `Join` (nodes of the
next layout), `Pause` and `Resume` (fronts), requests for snapshots, and the snapshot with which the
registry switches to the next layout. Invariant: before the registry switches, all nodes of the next
layout have stored the state as of this snapshot durably. Consumers then have all outputs below the
time of the snapshot, and no output from that time on.

    COPYING    the next nodes copy the newest snapshot from the current nodes, then the changes of
               each later one
    PAUSING    the next nodes have nearly all state; fronts pause, and each reports the time from
               which on it has sent nothing
    DRAINING   fronts send all records below the cut; consumers store all outputs below it
    CUTTING    the current nodes take the last snapshot, as of the cut
    MOVING     the next nodes copy the changes in the last snapshot
    SWITCHING  the coordinator writes the registry; then, as in a recovery, nodes report that they
               are ready, and fronts resume at the cut

The run is paused from PAUSING to the end. Until the registry is written, the current nodes can
continue. If the pause takes too long, the coordinator resumes the fronts and retries later. If a
current node or a front fails, the recovery ends the pause, and the rescaling returns to COPYING. In
both cases the next nodes keep the copied state. If the run is about to end, the coordinator
abandons the rescaling. A master that takes over does not know of a rescaling, and so abandons it.
The requester repeats its request until the run has the requested number of nodes.

The cut is the largest time that a front reported. If the time after the latest output that was ever
sent is larger, the cut is this time. Outputs that are being replayed count as sent. So the consumer
has no output from the cut on when the next nodes begin.
"""

from __future__ import annotations

from enum import Enum
from math import inf

from msgspec import Struct

from driftline.coordinator.members import Members
from driftline.coordinator.registry import ClusterState, SnapshotRecord
from driftline.coordinator.snapshots import Snapshots
from driftline.engine.events import event_fields, log
from driftline.engine.keygroups import Layout, node_names
from driftline.engine.policy import Policy
from driftline.engine.wire.messages import Join, Joined, Message, Pause, Paused, Resume

SNAPSHOT_FRESH_S = 1.0
"""Before the fronts pause, a snapshot is taken if the newest one is older than this (seconds)."""

SMALL_BYTES = 1 << 20
"""A next node that copied at most this many bytes for its latest snapshot has nearly all state."""

EARLY_SNAPSHOTS_MAX = 8
"""Maximum number of early snapshots with which the next nodes catch up before the pause."""

PAUSE_TIMEOUT_S = 1.0
"""Timeout of the first pause; it doubles with each failed attempt."""

SILENCE_MAX_S = 1.0
"""If a next node has been silent for longer, it may be dead, so the fronts do not pause."""

NODES_MAX = 64
"""Maximum number of nodes that a rescaling may request."""


class RescalePhase(Enum):
    """Phase of a rescaling, with human-readable values."""

    NONE = ""
    COPYING = "copying the state"
    PAUSING = "inputs are paused"
    DRAINING = "records already read are being processed"
    CUTTING = "the current nodes write the last snapshot"
    MOVING = "copying the last snapshot"
    SWITCHING = "writing the registry"


ABORTABLE_PAUSE = (
    RescalePhase.PAUSING,
    RescalePhase.DRAINING,
    RescalePhase.CUTTING,
    RescalePhase.MOVING,
)
"""Phases in which the coordinator can end the pause and return to COPYING. Fronts are paused in
SWITCHING, too, but this phase cannot be abandoned."""


class JoiningNode(Struct):
    """A process of a node of the next layout that has said hello."""

    process: str
    snapshot: tuple[int, int] | None = None
    """Number and incarnation of the snapshot that it has copied; None if unknown."""
    copied_bytes: int = 0
    """Bytes that it had to copy for this snapshot, beyond its previous one."""


class Rescaling:
    """State of one coordinator's rescaling. `out`: (receiver, message) to send.

    `nodes`: the nodes of the current layout, a list that the coordinator updates; `members`: the
    leases of all nodes, including the next ones; `groups`: the number of key groups.
    """

    def __init__(
        self,
        policy: Policy,
        fronts: list[str],
        snapshots: Snapshots,
        nodes: list[str],
        members: Members,
        groups: int,
    ) -> None:
        self.out: list[tuple[str, Message]] = []
        self.phase = RescalePhase.NONE
        self.next_layout: Layout = ()
        """The next layout; () if there is none."""
        self.refusal_reason = ""
        """Why the last request cannot be met; empty if it can."""
        self._requested_first_number = 0
        """`Rescale.first` of the latest request that was not ignored."""
        self._policy = policy
        self._fronts = fronts
        self._snapshots = snapshots
        self._nodes = nodes
        self._members = members
        self._groups = groups
        self._joining_nodes: dict[str, JoiningNode] = {}
        self._newest = SnapshotRecord(0, 0, ())
        """The newest committed snapshot."""
        self._newest_at = 0.0
        """When `advance` first saw this snapshot."""
        self._early_snapshots = 0
        """Number of early snapshots requested since the last pause."""
        self._newest_at_early_request = -1
        """Number that the newest committed snapshot had at the last request for an early one."""
        self._cut = 0
        """The cut; valid from DRAINING on."""
        self._pause_number = 0
        """Number of the current pause; `on_paused` ignores answers to earlier pauses."""
        self._paused: dict[str, Paused] = {}
        """Front -> its answer to the current pause."""
        self._paused_at = 0.0
        """When the current pause began."""
        self._pause_timeout_s = PAUSE_TIMEOUT_S
        """Timeout of the current or next pause."""
        self._retry_at = 0.0
        """When the fronts may pause again after a failed attempt."""
        self._now = 0.0

    # Requests.

    def request(self, nodes: int, layout: Layout, first_number: int = 0) -> None:
        """Request a number of nodes. `layout`: the current one; `first_number`: `Rescale.first`.

        May be repeated. A request is ignored while SWITCHING, and if its `first_number` is not 0
        and smaller than that of the previous request.
        """
        if self.phase is RescalePhase.SWITCHING or 0 < first_number < self._requested_first_number:
            return
        self.refusal_reason = self._refusal_reason(nodes)
        is_later = first_number > self._requested_first_number
        self._requested_first_number = first_number
        if self.refusal_reason or (
            nodes == len(self.next_layout or layout) and not (is_later and self.next_layout)
        ):
            return
        self.give_up("a new request replaces it")
        if nodes != len(layout):
            first_number = max(first_number, max(layout) + 1)
            self.next_layout = tuple(range(first_number, first_number + nodes))
            self.phase = RescalePhase.COPYING
            self._early_snapshots, self._pause_timeout_s, self._retry_at = 0, PAUSE_TIMEOUT_S, 0.0
            next_names, current_names = ", ".join(self.next_nodes), ", ".join(node_names(layout))
            fields = event_fields("rescaling", nodes=len(layout), wanted=nodes)
            text = "rescaling from %d to %d nodes: %s replace %s"
            log.info(text, len(layout), nodes, next_names, current_names, extra=fields)

    def _refusal_reason(self, nodes: int) -> str:
        if not self._policy.can_rescale:
            return (
                f"with {self._policy.name} a run keeps its number of nodes: only exactly-once can "
                "change it, because only exactly-once cuts state and outputs at the same record"
            )
        most = min(NODES_MAX, self._groups)
        if not 1 <= nodes <= most:
            return f"cannot run on {nodes} nodes: the number must be from 1 to {most}"
        return ""

    @property
    def next_nodes(self) -> list[str]:
        """The nodes of the next layout."""
        return node_names(self.next_layout)

    @property
    def blocks_snapshots(self) -> bool:
        """Whether only the rescaling itself may begin a snapshot, its last one: fronts are paused,
        or about to resume in the next layout."""
        return self.phase in ABORTABLE_PAUSE or self.phase is RescalePhase.SWITCHING

    @property
    def description(self) -> str:
        """Human-readable state of the rescaling; empty without one."""
        if self.phase is RescalePhase.NONE:
            return ""
        missing = [name for name in self.next_nodes if name not in self._joining_nodes]
        step = f"no message yet from {', '.join(missing)}" if missing else self.phase.value
        return f"{', '.join(self.next_nodes)} will replace the current nodes: {step}"

    # Members.

    def hello(self, name: str, process: str, state: ClusterState) -> None:
        """Note a process of a next node. If it lacks the newest snapshot, send `Join`."""
        joining = self._joining_nodes.get(name)
        if joining is None or joining.process != process:
            joining = self._joining_nodes[name] = JoiningNode(process)
        if (
            self.phase is not RescalePhase.SWITCHING
            and joining.snapshot != self._newest_snapshot_id(state)
        ):
            self._send_join(name, state)

    def joined(self, name: str, message: Joined, state: ClusterState) -> None:
        """Note that a next node has stored the state as of a snapshot; ignore outdated messages."""
        joining = self._joining_nodes.get(name)
        if joining is None or (message.layout, message.process) != (
            self.next_layout,
            joining.process,
        ):
            return
        if message.epoch != state.epoch:
            return  # copied for an earlier master; this master's `Join` makes the node start over
        snapshot = message.number, message.snapshot_incarnation
        if joining.snapshot != snapshot:
            joining.snapshot, joining.copied_bytes = snapshot, message.bytes

    def on_paused(self, front: str, message: Paused) -> None:
        """Store the answer of a front to the current pause; ignore answers to earlier pauses."""
        if message.number == self._pause_number:
            self._paused.setdefault(front, message)

    def _newest_snapshot_id(self, state: ClusterState) -> tuple[int, int]:
        """Return (number, incarnation) of the newest committed snapshot; (0, 0) without one."""
        newest = state.snapshots[0] if state.snapshots else None
        return (0, 0) if newest is None else (newest.number, newest.incarnation)

    def _send_join(self, name: str, state: ClusterState) -> None:
        """Ask a next node to copy the newest snapshot, if all current nodes are present."""
        addresses = self._members.addresses(self._nodes)
        if len(addresses) == len(self._nodes):
            snapshot = self._newest_snapshot_id(state)
            self.out.append((name, Join(self.next_layout, *snapshot, addresses)))

    # Phases.

    def advance(
        self, state: ClusterState, delivered: int, last_sent: int | None, now: float
    ) -> SnapshotRecord | None:
        """Advance the rescaling.

        `delivered`: the delivered frontier. `last_sent`: the latest time of an output that
        a node may have sent; None until all nodes have reported (`ReportedProgress.last_sent`).

        Once the next nodes have copied the last snapshot, return it; the caller writes it to the
        registry with the next layout. Until then return None.
        """
        self._now = now
        if self.phase is RescalePhase.NONE or self.phase is RescalePhase.SWITCHING:
            return None
        self._request_copies_of_new_snapshot(state, now)
        if self.phase is RescalePhase.COPYING:
            if (
                last_sent is not None
                and now >= self._retry_at
                and self._finish_copying(state, delivered, now)
            ):
                self._pause_fronts(now)
        elif now > self._paused_at + self._pause_timeout_s:
            self._retry_later(f"the pause took longer than {self._pause_timeout_s:g} s", now)
        elif self.phase is RescalePhase.PAUSING:
            if len(self._paused) == len(self._fronts) and last_sent is not None:
                self._drain(last_sent)
        elif last_sent is None or last_sent >= self._cut:
            self._retry_later("outputs from the cut on may already have been sent", now)
        elif self.phase is RescalePhase.DRAINING:
            if delivered == self._cut:
                self._begin_last_snapshot(now)
        elif self.phase is RescalePhase.CUTTING:
            if self._newest.time == self._cut:
                self.phase = RescalePhase.MOVING
            elif self._snapshots.pending is None:
                self._retry_later("the last snapshot has failed", now)
        if self.phase is RescalePhase.MOVING and self._have_newest_snapshot(state):
            assert self._newest.time == self._cut, "no other snapshot is taken meanwhile"
            self.phase = RescalePhase.SWITCHING
            return self._newest
        return None

    def _request_copies_of_new_snapshot(self, state: ClusterState, now: float) -> None:
        """If there is a new snapshot, ask the next nodes to copy it."""
        newest = state.snapshots[0] if state.snapshots else SnapshotRecord(0, 0, ())
        if newest != self._newest:
            self._newest, self._newest_at = newest, now
            for name in self._joining_nodes:
                self._send_join(name, state)

    def _finish_copying(self, state: ClusterState, delivered: int, now: float) -> bool:
        """Return whether the next nodes have nearly all state, so that fronts can pause.

        If the newest snapshot is too old for this, request an early one and return False.
        """
        for name in self.next_nodes:
            joining = self._joining_nodes.get(name)
            if joining is None or joining.snapshot is None:
                return False
            if now - self._members.heard_at(name) > SILENCE_MAX_S:
                return False
            if (
                joining.snapshot != self._newest_snapshot_id(state)
                and joining.copied_bytes > SMALL_BYTES
            ):
                return False
        if self._snapshots.pending is not None:
            return False
        is_fresh = now - self._newest_at <= SNAPSHOT_FRESH_S or delivered <= self._newest.time
        if is_fresh or self._early_snapshots >= EARLY_SNAPSHOTS_MAX:
            return True
        # Until the early snapshot is committed, repeated calls count as one.
        self._early_snapshots += self._newest_at_early_request != self._newest.number
        self._newest_at_early_request = self._newest.number
        self._snapshots.request_early()
        return False

    def _have_newest_snapshot(self, state: ClusterState) -> bool:
        joining_nodes = [self._joining_nodes.get(name) for name in self.next_nodes]
        return all(
            joining and joining.snapshot == self._newest_snapshot_id(state)
            for joining in joining_nodes
        )

    def _pause_fronts(self, now: float) -> None:
        self.phase, self._paused_at, self._early_snapshots = RescalePhase.PAUSING, now, 0
        self._paused.clear()
        self._pause_number += 1
        self._send_to_fronts(Pause(self._pause_number, -1))

    def _drain(self, last_sent: int) -> None:
        if all(paused.ended for paused in self._paused.values()):
            self.give_up("the input has ended")
            return
        self._cut = max(last_sent + 1, *(paused.time for paused in self._paused.values()))
        self.phase = RescalePhase.DRAINING
        self._send_to_fronts(Pause(self._pause_number, self._cut))

    def _begin_last_snapshot(self, now: float) -> None:
        self.phase = RescalePhase.CUTTING
        if self._newest.time != self._cut:
            self.out += self._snapshots.begin(self._cut, now)

    def _retry_later(self, reason: str, now: float) -> None:
        """Resume the fronts and return to COPYING; retry after the timeout, which then doubles."""
        text = "rescaling: %s; the run continues, and the rescaling is retried later"
        log.warning(text, reason, extra=event_fields("rescaling-postponed", reason=reason))
        self._resume_fronts()
        self._retry_at = now + self._pause_timeout_s
        self._pause_timeout_s *= 2

    def _resume_fronts(self) -> None:
        if self.phase in ABORTABLE_PAUSE:
            self._send_to_fronts(Resume())
        self.phase = RescalePhase.COPYING if self.next_layout else RescalePhase.NONE

    def give_up(self, reason: str) -> None:
        """Abandon the rescaling. Do nothing while SWITCHING."""
        if self.phase in (RescalePhase.NONE, RescalePhase.SWITCHING):
            return
        log.warning(
            "rescaling abandoned: %s",
            reason,
            extra=event_fields("rescaling-abandoned", reason=reason),
        )
        self._resume_fronts()
        self.forget()

    def on_incarnation_end(self) -> None:
        """Return to COPYING if fronts are paused: the pause ends with the incarnation.

        While SWITCHING, change nothing.
        """
        if self.phase in ABORTABLE_PAUSE:
            self.phase = RescalePhase.COPYING

    def on_takeover(self) -> None:
        """Resume fronts that the previous master may have paused."""
        self._send_to_fronts(Resume())

    def forget(self) -> None:
        """Clear the next layout, which was abandoned or has become the current one."""
        self._members.forget(name for name in self.next_nodes if name not in self._nodes)
        self.phase, self.next_layout = RescalePhase.NONE, ()
        self._joining_nodes.clear()

    @property
    def deadline(self) -> float:
        """When to call `advance`, if nothing else happens (seconds, monotonic)."""
        if self.phase in ABORTABLE_PAUSE:
            return self._paused_at + self._pause_timeout_s + 0.001
        return (
            self._retry_at
            if self.phase is RescalePhase.COPYING and self._retry_at > self._now
            else inf
        )

    def _send_to_fronts(self, message: Message) -> None:
        self.out += [(front, message) for front in self._fronts]
