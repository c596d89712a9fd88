"""The master: tracks the progress of a run and contains its coordinator.

The coordinator decides on snapshots and recovery. The master receives (senders in parentheses):
under a policy with label order `NodeProgress` (nodes), otherwise `Acknowledge` (nodes) and
`Promise` (fronts); `Alive` (nodes, fronts); `AskReport` and `Rescale` (status pollers, agents); and
the messages of the coordinator. It sends (receivers in parentheses): `Progress` (nodes, fronts), at
most once a millisecond, as no output waits for it; `AskPromise` (fronts); `StatusReport` (status
pollers, agents); and the messages of the coordinator.

A master that receives a message with a later epoch than its own stops deciding and exits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from driftline.acker.tracker import ReportedProgress, Tracker, blocking_cell
from driftline.coordinator.coordinator import MISSING_AFTER_S, Coordinator, Phase
from driftline.coordinator.registry import ClusterState, WriteState
from driftline.engine.errors import MalformedMessage
from driftline.engine.events import event_fields, log
from driftline.engine.flow.plan import Plan
from driftline.engine.labels import INFINITY
from driftline.engine.policy import Policy
from driftline.engine.texts import format_time
from driftline.engine.wire.kinds import NODE
from driftline.engine.wire.messages import (
    Acknowledge,
    Alive,
    AskPromise,
    AskReport,
    AskSnapshot,
    EndOfInput,
    Failed,
    FollowsMaster,
    Goodbye,
    Hello,
    Joined,
    Message,
    MessageHeader,
    MessageLost,
    NodeProgress,
    Paused,
    Prepared,
    PrepareFailed,
    Progress,
    Promise,
    Rescale,
    StatusReport,
    Unloadable,
)
from driftline.engine.wire.role import IOJob, Role

STALLED_AFTER_S = 10.0
"""If no member works, the oldest work counts as lost after this many seconds."""

HEARTBEAT_FRESH_S = 0.6
"""Members send every 0.2 s. If the last message of a member is older than this many seconds, the
master assumes that the member is busy, so that its work does not count as lost."""

PROGRESS_REPEAT_S = 1.0
"""Maximum interval between two `Progress` messages in seconds."""

PROGRESS_INTERVAL_S = 0.001
"""Minimum interval between two `Progress` messages in seconds."""

STALL_LOG_DELAY_S = 10.0
"""Seconds without progress before the first log line."""

STALL_LOG_DELAY_ENDING_S = 3.0
"""Seconds from the end of an input, or a drain, to the first log line about a stall."""

STALL_LOG_INTERVAL_ENDING_S = 30.0
"""Maximum seconds between two log lines about a stall after that."""


class Master(Role):
    """Master of a run.

    `nodes`: number of nodes of the first layout; `state`: the registry's state; `interval`: seconds
    between snapshots; `run`: token of this call of the command; `session`: number of this call, see
    `ClusterState.last_session`; `process`: id of the process; `missing_after_s`: see `Coordinator`;
    `stalled_after_s`: see `STALLED_AFTER_S`.
    """

    def __init__(
        self,
        nodes: int,
        plan: Plan,
        policy: Policy,
        state: ClusterState,
        interval: float,
        run: str = "",
        *,
        missing_after_s: float = MISSING_AFTER_S,
        stalled_after_s: float = STALLED_AFTER_S,
        process: str = "",
        session: int = 0,
    ) -> None:
        super().__init__("master")
        self.epoch = state.epoch
        self.plan = plan
        self.policy = policy
        self.coordinator = Coordinator(
            nodes,
            plan.fronts,
            policy,
            state,
            interval,
            run,
            missing_after_s,
            session,
            process,
            plan.flow.groups,
        )
        self.stalled_after_s = stalled_after_s
        self.tracker: Tracker | ReportedProgress | None = None
        """Progress of the incarnation; None before the incarnation begins."""
        self._progress = (-1, -1)
        """(processed, delivered) in the last `Progress`; (-1, -1): send even unchanged values."""
        self._next_progress_at = 0.0
        """When the next `Progress` may be sent (seconds, monotonic)."""
        self._oldest: tuple[int, int] | None = None
        """(time, stage) of the oldest work at the last check; None without any."""
        self._quiet_since = 0.0
        """Since when the oldest work is the same and no member has worked (seconds, monotonic)."""
        self._steps: dict[str, int] = {}
        """Member -> its number of steps of work in its last `Alive`."""
        self._has_worked = False
        """Whether a member has worked since the last check."""
        self._repeated_at = 0.0
        """When the master last repeated `Progress`, even if unchanged (seconds, monotonic)."""
        self._stalls = StallLogger()
        self._obstacle_by_member: dict[str, str] = {}
        """Member -> the obstacle in its last `Hello`."""

    @property
    def stopped(self) -> bool:
        return self.coordinator.phase in (Phase.STOPPED, Phase.ENDED)

    @property
    def ended(self) -> bool:
        return self.coordinator.phase is Phase.ENDED

    @property
    def broken(self) -> bool:
        """Whether this process must exit, because another master has taken over."""
        return self.coordinator.phase is Phase.SUPERSEDED

    def admits(self, header: MessageHeader) -> bool:
        # The sequence number of a control message is the epoch of the sender's master.
        if not self.coordinator.is_member(header.sender) or header.sequence <= self.epoch:
            return True
        self.coordinator.on_superseded()
        return False

    @property
    def waits_for(self) -> str:
        """State of the run and what it waits for, for people."""
        return "; ".join((*self._all_obstacles, self._phase_description))

    @property
    def _all_obstacles(self) -> tuple[str, ...]:
        """Obstacles of the run: that of the registry's disk, and those that members reported."""
        obstacles = (self._obstacle_by_member[name] for name in sorted(self._obstacle_by_member))
        return tuple(filter(None, (self.obstacle, *obstacles)))

    @property
    def _phase_description(self) -> str:
        waits_for, tracker = self.coordinator.waits_for, self.tracker
        if tracker is None:
            return waits_for
        if (oldest := tracker.oldest()) is not None:
            time, stage = oldest
            return f"{waits_for}; stage {stage} is not done with {format_time(time)}"
        if behind := tracker.undelivered():
            nodes = ", ".join(self.coordinator.nodes[index] for index in behind)
            waits_for += f"; the consumer has not stored all outputs of {nodes}"
        return waits_for

    def _report(self) -> StatusReport:
        coordinator, tracker = self.coordinator, self.tracker
        rescaling = coordinator.rescaling
        all_members = [*coordinator.nodes, *coordinator.fronts, *rescaling.next_nodes]
        figures = {
            "incarnation": coordinator.state.incarnation,
            "recoveries": coordinator.recoveries,
            "snapshots": coordinator.snapshots.committed,
            "processed": tracker.processed if tracker is not None else 0,
            "delivered": tracker.delivered if tracker is not None else 0,
            "reached": tracker.reached if tracker is not None else 0,
            "snapshot": coordinator.start_snapshot.number,
            "snapshot_time": coordinator.start_snapshot.time,
        }
        if (committed_at := coordinator.snapshots.committed_at) is not None:
            figures["snapshot_age_ms"] = int((self.now - committed_at) * 1000)
        return StatusReport(
            tuple(figures.items()),
            coordinator.phase.value,
            self.waits_for,
            coordinator.members.addresses(all_members),
            self._all_obstacles,
            (*coordinator.nodes, *rescaling.next_nodes),
            coordinator.state.layout,
            rescaling.description,
            rescaling.refusal_reason,
        )

    def handle(self, sender: str, message: Message) -> None:
        coordinator, tracker = self.coordinator, self.tracker
        if isinstance(message, AskReport | Rescale):
            self.addresses[sender] = message.address
            if isinstance(message, Rescale):
                coordinator.rescale(message.nodes, message.first)
                self._flush_coordinator()
            self.send(sender, self._report())
            return
        if self._is_nonmember_node(sender) and not isinstance(message, Hello | Joined):
            if isinstance(message, Alive):
                coordinator.on_alive(sender, message)
            return
        self._check_sender(sender, message)
        if isinstance(message, NodeProgress):
            if isinstance(tracker, ReportedProgress):
                oldest, waits = message.oldest, bool(message.waits_for_logs)
                report = message.processed, message.delivered, message.reached, oldest, waits
                tracker.record_report(coordinator.nodes.index(sender), *report, message.last_sent)
            return
        if isinstance(message, Acknowledge):
            if isinstance(tracker, Tracker):
                tracker.acknowledge(message.cells, message.covered)
                tracker.deliver(coordinator.nodes.index(sender), message.delivered)
            return
        if isinstance(message, Promise):
            if isinstance(tracker, Tracker):
                tracker.promise(message.front, message.since, message.until, message.durable)
            return
        if isinstance(message, Alive):
            coordinator.on_alive(sender, message)
            self._has_worked |= bool(message.busy) or self._steps.get(sender) != message.steps
            self._steps[sender] = message.steps
            return
        coordinator.set_time(self.now)
        if isinstance(message, Hello):
            self.addresses[sender] = message.address
            self._obstacle_by_member[sender] = message.obstacle
            coordinator.on_hello(sender, message)
        elif isinstance(message, FollowsMaster):
            coordinator.on_follows_master(sender, message)
        elif isinstance(message, Goodbye):
            self._obstacle_by_member.pop(sender, None)
            coordinator.on_goodbye(sender, message)
        elif isinstance(message, EndOfInput):
            if not coordinator.is_draining:
                self._stalls.on_end_of_input(self.now)
            coordinator.on_end_of_input(sender, message)
        elif isinstance(message, Prepared):
            coordinator.on_prepared(sender, message)
        elif isinstance(message, PrepareFailed):
            coordinator.on_prepare_failed(sender, message)
        elif isinstance(message, AskSnapshot):
            coordinator.snapshots.request_early()
        elif isinstance(message, Unloadable):
            coordinator.on_unloadable(sender, message)
        elif isinstance(message, Joined):
            coordinator.rescaling.joined(sender, message, coordinator.state)
        elif isinstance(message, Paused):
            coordinator.rescaling.on_paused(sender, message)
        elif isinstance(message, MessageLost):
            coordinator.on_message_lost(message)
        elif isinstance(message, Failed):
            coordinator.on_failed(message)
        else:
            raise MalformedMessage(f"{type(message).__name__} is not for a master")
        self._flush_coordinator()

    def _check_sender(self, sender: str, message: Message) -> None:
        """Raise MalformedMessage if this sender may not send such a message to this run."""
        if not self.coordinator.is_member(sender) and not self._is_nonmember_node(sender):
            raise MalformedMessage(f"{sender!r} is not a member of this run")
        is_progress = isinstance(message, (Acknowledge, NodeProgress))
        if is_progress and sender not in self.coordinator.nodes:
            raise MalformedMessage(f"progress of {sender!r}, which is not a node")
        if isinstance(message, EndOfInput | Paused) and sender not in self.coordinator.fronts:
            raise MalformedMessage(f"{type(message).__name__} of {sender!r}, which is not a front")
        if isinstance(message, Promise) and sender != f"front-{message.front}":
            raise MalformedMessage(f"a promise of front {message.front}, sent by {sender!r}")

    def _is_nonmember_node(self, sender: str) -> bool:
        """Return whether `sender` is a node that left the run or has not joined it yet."""
        role, _, number = sender.partition("-")
        return role == NODE and number.isdecimal() and not self.coordinator.is_member(sender)

    def channel_lost(self, sender: str) -> None:
        self.coordinator.on_message_lost(
            MessageLost(self.incarnation, f"the master misses messages of {sender}")
        )

    def on_job_done(self, job: IOJob, result: object) -> None:
        if isinstance(job, WriteState):
            self.update_obstacle(job, result)
            self.coordinator.set_time(self.now)
            self.coordinator.on_job_done(job, result)
            self._flush_coordinator()

    def tick(self, now: float) -> float:
        self.coordinator.tick(now)
        if self.tracker is not None and self.coordinator.phase is Phase.RUNNING:
            self._recover_lost_work(now, self.tracker)
            # `delivered` is INFINITY once all inputs have ended; a snapshot gets a finite time, as
            # the inputs may grow before the next start.
            time = min(self.tracker.delivered, self.tracker.reached)
            self.coordinator.consider_snapshot(time)
        self._flush_coordinator()
        self._log_stalls(now)
        return self.coordinator.deadline

    def _log_stalls(self, now: float) -> None:
        """Log what the run waits for if it has made no progress for long."""
        phase, tracker = self.coordinator.phase, self.tracker
        if phase is not Phase.RUNNING or tracker is None:
            has_work = phase not in (Phase.STOPPED, Phase.ENDED, Phase.SUPERSEDED)
            self._stalls.update(now, phase, has_work, lambda: self.waits_for)
            return
        progress = tracker.processed, tracker.delivered
        has_work = (
            tracker.oldest() is not None
            or progress[0] != progress[1]
            or tracker.waits_for_logs
            or self.coordinator.is_draining
        )
        self._stalls.update(now, progress, has_work, lambda: self.waits_for)

    def turn(self) -> bool:
        self.coordinator.set_time(self.now)
        if self.coordinator.phase is not Phase.RUNNING or self.tracker is None:
            return False
        processed, delivered = self.tracker.processed, self.tracker.delivered
        self.coordinator.consider_end(processed, delivered, self.tracker.reached)
        if isinstance(self.tracker, ReportedProgress):
            self.coordinator.consider_rescaling(delivered, self.tracker.last_sent)
        self._flush_coordinator()
        if (processed, delivered) != self._progress:
            self.coordinator.note_progress(processed, delivered)
            self.tick_by = min(self.tick_by, self._next_progress_at)
            if self.now >= self._next_progress_at or processed >= INFINITY:
                self._send_progress(processed, delivered)
        for front, time in self.tracker.take_lagging_fronts():
            self.send(self.coordinator.fronts[front], AskPromise(time))
        return False

    def _send_progress(self, processed: int, delivered: int) -> None:
        self._progress = (processed, delivered)
        self._next_progress_at = self.now + PROGRESS_INTERVAL_S
        for name in (*self.coordinator.nodes, *self.coordinator.fronts):
            self.send(name, Progress(processed, delivered))

    def _recover_lost_work(self, now: float, tracker: Tracker | ReportedProgress) -> None:
        """Recover lost work that no gap in message numbers has revealed.

        Work counts as lost if the oldest work is unchanged for `stalled_after_s` and no member
        works. Also make the next turn repeat `Progress`, if that is due.
        """
        oldest = tracker.oldest()
        members = self.coordinator.nodes + self.coordinator.fronts
        is_fresh = self.coordinator.members.all_heard(members, now - HEARTBEAT_FRESH_S)
        worked = self._has_worked or not is_fresh
        self._has_worked = False
        if oldest is None or oldest != self._oldest or worked:  # slow work is not lost
            self._oldest, self._quiet_since = oldest, now
        elif now - self._quiet_since > self.stalled_after_s:
            self._quiet_since = now
            time, stage = oldest
            reason = f"the work on {format_time(time)} in stage {stage} has stalled"
            self.coordinator.on_message_lost(MessageLost(self.incarnation, reason))
            return
        if now - self._repeated_at >= PROGRESS_REPEAT_S:
            # If an earlier `Progress` was lost, members notice it by the gap in message numbers.
            self._repeated_at = now
            self._progress = (-1, -1)

    def _make_tracker(self) -> None:
        start = min(self.coordinator.start_snapshot.offsets) if self.policy.replay else 0
        self._progress = (-1, -1)
        if self.policy.ordered:
            self.tracker = ReportedProgress(len(self.coordinator.nodes), start)
            return
        nodes = len(self.coordinator.nodes)
        self.tracker = Tracker(self.plan.stages, self.plan.fronts, nodes, start)
        if self.policy.recovers_locally:  # hold the frontier back until each node has recovered
            self.tracker.acknowledge([blocking_cell(node, start) for node in range(nodes)])

    def _flush_coordinator(self) -> None:
        """Send the coordinator's messages and start its writes."""
        coordinator = self.coordinator
        self.jobs += coordinator.jobs
        coordinator.jobs = []
        if coordinator.state.epoch > self.epoch:  # this master has begun its own epoch
            self.follow_master(coordinator.state.epoch)
        # Do not enter the incarnation before this master leads: until then, members send messages
        # to the previous master.
        if coordinator.leads and coordinator.state.incarnation > self.incarnation:
            self.enter_incarnation(coordinator.state.incarnation)
            self.tracker = None
        if coordinator.phase in (Phase.ASKING, Phase.RUNNING) and self.tracker is None:
            self._make_tracker()
        for name, message in coordinator.out:
            self.send(name, message)
        coordinator.out = []
        self.tick_by = min(self.tick_by, coordinator.deadline)


class StallLogger:
    """Log lines on what a run waits for while it has work and makes no progress.

    It logs the first line after 10 s, and further lines after pauses that double. If the run was
    asked to end and makes no progress, it logs a line 3 s after the request, then at least one
    every 30 s. It logs another line once the run makes progress again.
    """

    def __init__(self) -> None:
        self._progress: object = None
        self._progress_at = 0.0
        """When the run last progressed or had no work (seconds, monotonic)."""
        self._log_after_s = STALL_LOG_DELAY_S
        """Seconds from `_progress_at` to the next log line."""
        self._is_logged = False
        """Whether the current stall was logged."""
        self._pause_max_s = inf
        """Longest pause between two log lines, in seconds."""

    def on_end_of_input(self, now: float) -> None:
        """Log the next lines about a stall sooner: a user waits for the end of the run."""
        self._log_after_s = min(
            self._log_after_s, now - self._progress_at + STALL_LOG_DELAY_ENDING_S
        )
        self._pause_max_s = STALL_LOG_INTERVAL_ENDING_S

    def update(
        self, now: float, progress: object, has_work: bool, describe: Callable[[], str]
    ) -> None:
        """Log a stall; `progress`: a value that changes when the run progresses.

        `describe`: returns what the run waits for.
        """
        stalled_s = now - self._progress_at
        if has_work and progress == self._progress:
            if stalled_s >= self._log_after_s:
                pause_s = min(max(STALL_LOG_DELAY_S, 2 * stalled_s) - stalled_s, self._pause_max_s)
                self._log_after_s, self._is_logged = stalled_s + pause_s, True
                reason = describe()
                fields = event_fields("standstill", seconds=stalled_s, reason=reason)
                log.warning("no progress for %.0f s: %s", stalled_s, reason, extra=fields)
            return
        if self._is_logged:
            fields = event_fields("standstill-over", seconds=stalled_s)
            log.warning("there is progress again, after %.0f s", stalled_s, extra=fields)
        self._progress, self._progress_at = progress, now
        self._log_after_s, self._is_logged = STALL_LOG_DELAY_S, False
