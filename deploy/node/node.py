"""Node role: runs all operators of the flow for its key groups, and owns one barrier.

Takes: frames and markers (fronts, nodes), `Acknowledge`, `Delivered` (nodes), `Promise` (fronts),
`Progress`, `Prepare`, `Committed`, `Recover` (master), `BundleStored`, `LastBundle`, `Delayed`,
`Failed` (consumer), and the messages of a state transfer (`state_transfer`). Sends: frames and
markers, an `Acknowledge` of processed frames, `Prepared` or `PrepareFailed`, `NodeProgress` and
`Delivered` (label order), `AskPromise` (fronts), `AskSnapshot`, bundles, `FetchLast`; `Unloadable`
or `Failed` if it cannot continue. Invariants: a frame leaves before, or together with, the
acknowledgement of the frames that it was made from; the node processes elements only after it has
restored the complete snapshot and knows the consumer's t_last.

A turn processes all received blocks, stage by stage (`stages`). The frames of a stage leave as soon
as the stage is done (strong productions: as soon as they are durable). Final outputs leave as soon
as the last stage is done. The turn ends with work that no output waits for: snapshots, settling,
encoding. While the consumer or the snapshots are slow, turns process no blocks (`Backpressure`).

Recovery: after `Recover` the node loads the snapshot and restores it into a new pipeline
(`Restoring`), then asks the consumer for its last bundle. The node runs once the consumer has
answered.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs
from msgspec.structs import replace

from driftline.deploy.node.backpressure import WAITING_BYTES, Backpressure, TurnBudget
from driftline.deploy.node.component_factory import ComponentFactory
from driftline.deploy.node.delivery import Delivery, DeliveryGossip
from driftline.deploy.node.input_queue import arrived_block
from driftline.deploy.node.pipeline import NodePipeline, Snapshotter
from driftline.deploy.node.stages import Stages
from driftline.deploy.node.state_transfer import Restoring, StateServer, StateTransfer
from driftline.deploy.node.watermarks import WatermarkMonitor
from driftline.deploy.roles.member import Member
from driftline.engine.errors import DriftlineError, MalformedMessage, SnapshotDamaged
from driftline.engine.event_time import iso_text
from driftline.engine.events import FailureLog, RateLimitedLog, event_fields, log
from driftline.engine.flow.plan import Plan
from driftline.engine.labels import INFINITY, Label
from driftline.engine.policy import Policy
from driftline.engine.snapshots.jobs import ListParts, LoadSnapshot, MergeParts, ReadSlice
from driftline.engine.texts import format_label
from driftline.engine.wire.messages import (
    Acknowledge,
    AskParts,
    AskPromise,
    AskSlice,
    AskSnapshot,
    BundleStored,
    Committed,
    Delayed,
    Delivered,
    Failed,
    Frame,
    Join,
    LastBundle,
    Marker,
    Message,
    NoParts,
    Outgoing,
    Parts,
    Prepare,
    Progress,
    Promise,
    Recover,
    Slice,
    StatusReport,
)
from driftline.engine.wire.role import IOJob

POSTPONED_TURNS_MAX = 2
"""Consecutive turns that may postpone settling and encoding so that messages leave first."""

ENCODE_ROWS_IDLE, ENCODE_ROWS_OVERDUE = 256, 16384
"""Maximum rows of each state that one turn encodes. The first applies if the node has no messages
to send: it is small, so that the node handles new messages soon. The second applies after
`POSTPONED_TURNS_MAX` turns that postponed encoding."""

BUNDLES_WAITING = 8
"""This many bundles of the maximum size fit into `waiting_bytes`."""

OVERDUE_S = 1.0
"""If a bundle is unacknowledged for longer than this (seconds), the status says that the node waits
for the consumer."""

UNANSWERED_WARN_COUNT = 4
"""The node warns if more `FetchLast` than this are unanswered; it repeats one every second."""

STATE_TRANSFER, CONSUMER = "state transfer", "consumer"
"""Keys of `obstacles`: why the state transfer starts over; why the consumer cannot store."""


class Node(Member):
    """Node `index`, with any policy. The first layout has nodes 0 to `nodes` - 1; the master sends
    later layouts.

    `new_id`: returns a random id; `process`, `address`, `run`: see `Member`; `dead_letters`: see
    `Barrier`; `reports_progress`: value of `Barrier.reports_progress`; `budget`: None for one
    without time limit; `waiting_bytes`: see `Backpressure`.
    """

    def __init__(
        self,
        index: int,
        nodes: int,
        plan: Plan,
        policy: Policy,
        new_id: Callable[[], int],
        *,
        process: str = "",
        address: str = "",
        dead_letters: bool = False,
        run: str = "",
        budget: TurnBudget | None = None,
        waiting_bytes: int = WAITING_BYTES,
        reports_progress: bool = False,
    ) -> None:
        super().__init__(f"node-{index}", process, address, run)
        self.index = index
        self.plan = plan
        self.budget = budget or TurnBudget(plan)
        self.more_figures: Callable[[], dict[str, int]] = dict
        """Returns the driver's counters, by name, which `figures` adds to those of the node."""
        # A node of a later layout uses a placeholder until the master sends that layout.
        layout = tuple(range(nodes)) if index < nodes else (index,)
        bundle_bytes = waiting_bytes // BUNDLES_WAITING
        self._factory = ComponentFactory(
            plan, policy, index, layout, new_id, dead_letters, bundle_bytes, reports_progress
        )
        self._waiting_bytes = waiting_bytes
        self._state_server = StateServer()
        self._consumer_silence = FailureLog("consumer-silent")
        self._dropped_log = RateLimitedLog(
            "late-elements", f"{self.name} applied an element that was late for windows or a join"
        )
        self._fronts_warned: set[int] = set()
        """Fronts for which this process has warned about a record with a future event time."""
        self.watermarks = WatermarkMonitor([source.name for source in plan.flow.sources])
        self._transfer: StateTransfer | None = None
        """State transfer into the next layout; None if none is in progress."""
        self._restored_event_times: tuple[tuple[int, int], ...] = ()
        """Event-time states of the sources as of the snapshot that this incarnation begins from."""
        self._restored_late = 0
        """On the first node of the layout: number of late elements before the snapshot; else 0."""
        self._begin(self._factory.make_load_job(), 0)

    def _begin(self, load: LoadSnapshot, start: int, same_code: bool = True) -> None:
        """Drop all volatile state; prepare to load a snapshot of time `start` with the job `load`.

        `same_code`: whether the snapshot was taken by the code that runs now.
        """
        self.running = self.ready = False
        self._restored = False
        """Whether the pipeline has the state of the snapshot; until then the pipeline is empty."""
        self._restoring = Restoring(self._factory, load, start, same_code, self.now)
        self._set_up(self._factory.make_pipeline(), start)

    def _set_up(self, pipeline: NodePipeline, start: int) -> None:
        """Create the objects of an incarnation that processes times from `start` on."""
        pipeline.begin(start, self._restored_event_times, self._restored_late)
        self.pipeline = pipeline
        self.barrier = pipeline.barrier
        self._delivery = Delivery(pipeline.barrier, self.incarnation, self.address)
        self._tracking = self._factory.make_tracking(start, pipeline.clock)
        self._snapshots = Snapshotter(pipeline, self.incarnation)
        self._stages = Stages(
            self._factory, pipeline, self._tracking, self._snapshots, self.budget, self.send
        )
        self.backpressure = Backpressure(self.name, self._waiting_bytes)
        self._gossip = DeliveryGossip(self._factory.others, start)
        self._has_begun = False
        """Whether the master has sent `Progress`: all nodes have then entered the incarnation."""
        self._stage = 0
        """Stage at which the next `turn` continues; `plan.stages`: at the release of outputs;
        larger: at the end of the turn."""
        self._frontiers_moved = False
        """Whether frontiers have moved since the end of the last turn."""
        self._settle_below = 0
        """Elements below this time are delivered and not settled yet; 0 if there are none."""
        self._postponed_turns = 0
        """Consecutive turns that have postponed settling and encoding."""
        self._unsaved = 0
        """Bytes that waited for the next snapshot at the last `_update_unsaved`; 0 if that snapshot
        needs more blocks of this node."""

    # Status.

    @property
    def state(self) -> str:
        """The current activity, for people."""
        if self.stopped:
            return "ended"
        if self.running:
            overdue = self.now - self._delivery.sent_at > OVERDUE_S
            waits = self.barrier.outstanding is not None and overdue
            return "waiting for the consumer" if waits else "running"
        if self._restored:
            return "waiting for the consumer"
        if self._transfer is not None:
            return "joining"
        return f"loading {self._restoring.percent} %" if self.incarnation else "starting"

    @property
    def steps(self) -> int:
        return self.budget.steps

    @property
    def blocks_others(self) -> bool:
        return self.pipeline.storing or self.backpressure.is_paused

    @property
    def snapshot_numbers(self) -> tuple[int, int]:
        return self._snapshots.requested_number, self._snapshots.answered_number

    @property
    def doing(self) -> str:
        return self.budget.doing()

    def follow(self) -> None:
        if self.running:  # first, as the new master continues once all members have answered
            self._send_acknowledgements()
        super().follow()

    def figures(self) -> dict[str, int]:
        """Return counts of this incarnation, and those of the driver (`more_figures`), by name.

        May be called by another thread.
        """
        own = {"frames": self._stages.frames, "malformed": self.malformed}
        return {**self.pipeline.figures(), **own, **self.more_figures()}

    def gauges(self) -> dict[str, float]:
        """Return the sizes of queues and the progress, by name. May be called by another thread."""
        return {
            "waiting_bytes": self.barrier.waiting_bytes,
            "unsaved_bytes": self._unsaved_bytes(),
            "snapshot_bytes": self._snapshots.last_bytes,
            "written_bytes": self._snapshots.stored_bytes,
            "restored": 1.0 if self._restored else self._restoring.percent / 100,
        }

    def status_figures(self) -> dict[str, int]:
        waits = {
            "held_back": int(self.backpressure.is_paused),
            "waiting_bytes": self.barrier.waiting_bytes,
        }
        waits |= {"unsaved_bytes": self._unsaved_bytes(), "delivered": self._gossip.delivered}
        return self.figures() | waits

    def status_report(self) -> StatusReport:
        report, clock = super().status_report(), self.pipeline.clock
        if clock is None or not self.running:
            return report
        sources = self.watermarks.sources(clock, self.now)
        steps = list(self.pipeline.timed_steps.values())
        operators = self.watermarks.operators(clock, steps)
        return structs.replace(report, sources=sources, operators=operators)

    # Messages and jobs.

    def handle(self, sender: str, message: Message) -> None:
        if isinstance(message, Frame):
            if not 0 <= message.port < len(self.plan.ports):
                raise MalformedMessage(f"a frame for port {message.port}, which does not exist")
            block = arrived_block(message)
            if message.cells or message.covered:  # first: a MalformedMessage drops the block, too
                self._tracking.acknowledge(message.cells, message.covered, message.event_times)
            self._stages.admit(sender, message.upstream, block)
        elif isinstance(message, Acknowledge):
            self._tracking.acknowledge(message.cells, message.covered, message.event_times)
        elif isinstance(message, BundleStored):
            self._delivery.stored(message)
            self.obstacles.pop(CONSUMER, None)
        elif isinstance(message, Promise):
            self._tracking.promise(message)
        elif isinstance(message, Progress):
            self._has_begun = True
            self._settle_below = message.delivered
            self._gossip.progress(message.delivered, self.now)
            self.budget.record_processed(message.processed)
            self._send_all(self.pipeline.progress(message.processed))
        elif isinstance(message, Marker):
            self._stages.mark(sender, message)
        elif isinstance(message, Delivered):
            self._gossip.on_delivered(sender, message.time)
        elif isinstance(message, Prepare):
            refused = message.time < self._gossip.settled
            prepare = self._snapshots.refuse if refused else self._snapshots.prepare
            self._send_all(prepare(message.number, message.time))
        elif isinstance(message, Committed):
            merge_parts = self.pipeline.merge_job(message.number, message.previous)
            # While another node reads the parts, do not merge them; a later commit does.
            if not self._state_server.is_being_read(self.now):
                self.jobs.append(merge_parts)
        elif isinstance(message, LastBundle):
            self._on_last_bundle(message)
        elif isinstance(message, Delayed):
            if message.incarnation == self.incarnation:
                self._delivery.unanswered = 0
                self.obstacles[CONSUMER] = f"{self.name} waits for its consumer: {message.reason}"
        elif isinstance(message, Recover):
            self._recover(message)
        elif isinstance(message, Join):
            self._join(message)
        elif isinstance(message, Parts | Slice | NoParts):
            if self._transfer is not None:
                self._transfer.answer(sender, message, self.send, self.now)
                self._take_jobs(self._transfer)
        elif isinstance(message, AskParts | AskSlice):
            self.addresses[sender] = message.address
            self.jobs.append(self._state_server.ask(sender, message, self.now))
        elif isinstance(message, Failed):  # from the consumer, which cannot continue
            if message.incarnation == self.incarnation:
                self.report(message)
        else:
            super().handle(sender, message)
            if self.stopped:
                self._log_event_time_problems()
                self._dropped_log.close()

    def tick(self, now: float) -> float:
        if self.running and now >= self._tracking.send_by:
            self._send_acknowledgements()
        if self.running and now >= self._gossip.send_by:
            self._send_delivered()
        if self._restored and now >= self._delivery.ask_at:
            self._ask_consumer(now)
        if self._transfer is not None:
            self._transfer.retry_overdue(self.send, now)
            self._take_jobs(self._transfer)
        elif not self.running:
            self._restoring.log_progress(self.name, now)
        self._log_event_time_problems()
        self._dropped_log.log_if_due(now)
        return super().tick(now)

    def _log_event_time_problems(self) -> None:
        """Warn about event times in the future, once per front, and about late elements."""
        for front, (time, event_time) in self.pipeline.chains.future_records.items():
            if front not in self._fronts_warned:
                self._fronts_warned.add(front)
                self._warn_about_future(
                    self.plan.flow.sources[front].name, (time, front), event_time
                )
        for vertex, count in self.pipeline.take_dropped():
            self._dropped_log.add(
                self.now,
                f"{vertex.kind} {vertex.name!r} at {vertex.line.partition(',')[0]}. Results may "
                "lack it: increase max_delay= of the source or lateness= of the windows, or use "
                "their .late stream",
                count,
            )

    def _warn_about_future(self, source: str, label: Label, event_time: int) -> None:
        text = iso_text(event_time)
        fields = event_fields(
            "future-event-time", source=source, label=str(list(label)), event_time=text
        )
        log.warning(
            "source %r: the event time of %s, %s, is more than a day ahead of the clock. The "
            "watermark never moves back, so records with earlier event times are late. Correct the "
            "producer, or let event_time raise a ValueError for such records",
            *(source, format_label(label), text),
            extra=fields,
        )

    def repeat(self) -> None:
        if self._restoring.load_again:
            self._restoring.load_again = False
            self.jobs.append(self._restoring.load)
        if self._transfer is not None:
            self._transfer.repeat_joined(self.send)
        if self.running:
            if self.pipeline.clock is not None:
                self.watermarks.update(self.pipeline.clock, self.now)
            if self._has_begun:  # in every policy: if a marker was lost, the receiver sees a gap
                self._send_all(self._stages.peers.empty_acknowledgements())
            self._send_acknowledgements()
            if self._gossip.is_master_silent(self.now):
                self._send_delivered()
            if 2 * self._unsaved_bytes() > self.backpressure.waiting_bytes:
                self.send("master", AskSnapshot())

    def on_job_done(self, job: IOJob, result: object) -> None:
        if isinstance(job, MergeParts) and result is True:
            if not self._state_server.is_being_read(self.now):  # else a later commit continues
                self.jobs.append(job)  # more parts remain to be merged
        elif isinstance(job, ListParts | ReadSlice):
            if (part := self._state_server.answer(job, result)) is not None:
                self.send(job.requester, part)
        elif job is self._restoring.load:
            self.update_obstacle(job, result)
            self._restoring.take(result)
            self.budget.begin()
            self._restore()
        elif (answer := self._snapshots.stored(job, result)) is not None:
            self.update_obstacle(job, result)
            if isinstance(result, SnapshotDamaged):  # no later write succeeds either
                self._fail(result)
            self._send_all(self.pipeline.stored(answer))
        elif self._transfer is not None and self._transfer.done(job, result, self.send, self.now):
            self.update_obstacle(job, result)
            self._take_jobs(self._transfer)

    # A turn.

    def turn(self) -> bool:
        if self.outcome is not None:
            return False
        self.budget.begin()
        if not self.running:
            return self._restore()
        resumed = self._stage > 0  # earlier stages need another turn for blocks that arrived since
        try:
            return self._work() or self._end_turn() or resumed
        except DriftlineError as error:
            self._fail(error)
            return False

    def _work(self) -> bool:
        """Process the stages. Return whether messages should leave before the turn continues."""
        stages, tracking, last = self._stages, self._tracking, self.plan.stages
        if self._stage == 0:
            if tracking.is_stale and stages.input_queue.has_several():
                self._advance()
            if self.backpressure.is_paused:  # otherwise the end of the last turn has done this
                self._update_unsaved()
            if self.backpressure.update(self.barrier.waiting_bytes, self._unsaved, self.now):
                self._stage = last
            else:
                stages.unfinished = False
        while self._stage < last:
            stage, self._stage = self._stage, self._stage + 1
            stages.process_stage(stage)
            if stages.peers.has_unsent_frames:
                self._acknowledge()
            if self.outbox and (stages.own_blocks or stages.input_queue.has_blocks(self._stage)):
                return True  # send the frames now: other nodes can process them meanwhile
        if self._stage > last:
            return False
        self._stage += 1
        if tracking.is_stale or stages.gates_due:
            self._advance()
        return self._send_bundle()

    def _end_turn(self) -> bool:
        """Do the work that no output waits for. Return whether the node needs another turn."""
        stages, tracking, barrier = self._stages, self._tracking, self.barrier
        self._stage = 0
        if number := self.pipeline.end_turn(tracking.acks, unfinished=stages.unfinished):
            self._snapshots.begin(number, INFINITY)
        if tracking.acks:
            self._acknowledge()
            self._advance()
            self._send_bundle()
        self._update_unsaved()
        more, job = self._snapshots.step()
        if job is not None:
            self.jobs.append(job)
        more |= bool(tracking.acks) or stages.gates_due
        if not self.backpressure.is_paused:
            more |= stages.unfinished or (self._frontiers_moved and stages.input_queue.has_blocks())
        self._frontiers_moved = False
        tracking.deliver(barrier.delivered, barrier.stored_blob_count, self.now)
        # The frontier may be INFINITY, but no snapshot is later than what fronts have reached.
        processed = min(tracking.frontiers[-1], tracking.tracker.reached)
        self._gossip.deliver(min(barrier.delivered, processed), self.now)
        self.tick_by = min(self.tick_by, tracking.send_by, self._gossip.send_by)
        if self.outbox and self._postponed_turns < POSTPONED_TURNS_MAX:
            self._postponed_turns += 1
            return True  # let the messages leave first
        self._postponed_turns = 0
        if self.outbox:
            self._settle_and_encode(ENCODE_ROWS_OVERDUE)
            return True
        return more or barrier.encode_ahead() or self._settle_and_encode(ENCODE_ROWS_IDLE)

    def _advance(self) -> None:
        """Act on new frontiers: count roots as final, release waiting elements and outputs."""
        stages, tracking = self._stages, self._tracking
        if self._factory.position == 0:
            # Do this even if no frontier moves: all frontiers may wait for a lagging front.
            for front, time in tracking.tracker.take_lagging_fronts():
                self.send(f"front-{front}", AskPromise(time))
        if tracking.update_frontiers(self.now):
            self._frontiers_moved = stages.gates_due = True
            stages.input_queue.settle(tracking.frontiers[-1])
        if stages.gates_due:
            stages.release()
        self.barrier.advance(tracking.final_outputs(stages.input_queue.first(-1)))

    def _settle_and_encode(self, rows: int) -> bool:
        """Settle delivered elements and encode rows. Return whether any were encoded."""
        settle_below, self._settle_below = self._settle_below, 0
        if settle_below := max(settle_below, self._gossip.take_settle_time(self.now)):
            self.pipeline.settle(settle_below)
        return self.pipeline.encode_early(rows)

    # Start of an incarnation.

    def _join(self, message: Join) -> None:
        """Fetch the state that this node needs in the next layout.

        Do nothing if this process has entered an incarnation: it then belongs to the layout.
        """
        if self.incarnation or self.stopped or self._factory.index not in message.layout:
            return
        self.addresses.update(message.sources)
        transfer = self._transfer
        if transfer is None or (transfer.layout, transfer.epoch) != (message.layout, self.epoch):
            transfer = StateTransfer(self._factory, message, self.epoch, self.process, self.address)
            self._transfer = transfer
        transfer.join(message, self.send, self.now)
        self._take_jobs(transfer)

    def _take_jobs(self, transfer: StateTransfer) -> None:
        """Take over the jobs of a state transfer, and its problem as an obstacle."""
        self.obstacles.pop(STATE_TRANSFER, None)
        if transfer.problem:
            reason = f"{self.name} starts the state transfer over: {transfer.problem}"
            self.obstacles[STATE_TRANSFER] = reason
        self.jobs += transfer.jobs
        transfer.jobs = []

    def _recover(self, message: Recover) -> None:
        if message.incarnation <= self.incarnation:
            return
        self.enter_incarnation(message.incarnation)
        self.addresses.update(message.addresses)
        if message.layout:
            self._factory = replace(self._factory, layout=message.layout)
        load = self._factory.make_load_job(message.number, message.snapshot_incarnation)
        self._restored_event_times = message.event_times
        self._restored_late = message.late if self._factory.position == 0 else 0
        self._begin(load, message.time, bool(message.same_code))
        transfer, self._transfer = self._transfer, None
        snapshot = message.layout, message.number, message.snapshot_incarnation
        if transfer is not None and transfer.has_state(*snapshot):
            self._restoring.pipeline = transfer.pipeline_from(message.time)
            self._restore()
        else:
            self.jobs.append(load)

    def _restore(self) -> bool:
        """Restore or transfer state for one turn. Return whether more remains."""
        if self._transfer is not None:
            more = self._transfer.work(self.budget, self.send, self.now)
            self._take_jobs(self._transfer)
            return more
        restoring = self._restoring
        problem = restoring.work(self.budget, self.incarnation)
        if problem is not None:
            self.report(problem)
        if restoring.pipeline is not None and not self._restored:
            self._restored = True
            self._set_up(restoring.pipeline, restoring.start)
            self._ask_consumer(self.now)
        return restoring.in_progress

    def _ask_consumer(self, now: float) -> None:
        """Ask the consumer for its last bundle if a question is due (`Delivery.question`)."""
        question = self._delivery.question(now)
        if question is None:
            self._consumer_silence.record_success(
                now, f"the consumer of {self.barrier.name} answers again"
            )
            return
        self.send("consumer", question)
        if self._delivery.unanswered > UNANSWERED_WARN_COUNT:
            text = f"the consumer of {self.barrier.name} does not answer; retrying"
            self._consumer_silence.record_failure(now, text, barrier=self.barrier.name)

    def _on_last_bundle(self, message: LastBundle) -> None:
        if not self._restored:
            return
        try:
            bundle = self._delivery.on_last_bundle(message)
        except DriftlineError as error:
            self._fail(error)
            return
        if bundle is not None:
            self.send("consumer", bundle)
        if self.barrier.outstanding is None:  # else it is unknown whether the consumer can store
            self.obstacles.pop(CONSUMER, None)
        if self.barrier.connected and not self.ready:
            self.ready = self.running = True
            keys = self.pipeline.figures()["keys"]
            self._restoring.log_end(self.name, self.now, keys, self.barrier)
            self.hello()

    def _fail(self, error: Exception) -> None:
        self.running = False
        self.report(Failed(self.incarnation, type(error).__name__, str(error)))

    # Messages to send, except frames.

    def _send_bundle(self) -> bool:
        """Send the next bundle if outputs may leave, else an empty one if it is due.

        Return whether outputs were sent.
        """
        bundle = self._delivery.bundle(self.now)
        if bundle is not None:
            self.send("consumer", bundle)
        elif (empty_bundle := self._delivery.take_empty_bundle()) is not None:
            self.send("consumer", empty_bundle)
        return bundle is not None

    def _unsaved_bytes(self) -> int:
        return self.pipeline.unsaved_bytes + self._snapshots.unstored_bytes

    def _update_unsaved(self) -> None:
        self._unsaved = self._unsaved_bytes() if self.pipeline.waits_for_snapshot else 0

    def _acknowledge(self) -> None:
        """Send peers the acknowledgement of the work so far if their outputs wait for it."""
        self._send_all(self._stages.peers.acknowledge(self._tracking.end_turn(self.now)))

    def _send_acknowledgements(self) -> None:
        """Send peers and the master the acknowledgements that are still pending."""
        self._send_all(self._stages.peers.acknowledge(self._tracking.take_for_peers()))
        self.send("master", self._tracking.take_for_master(self.barrier.last_sent))

    def _send_delivered(self) -> None:
        """Send the fronts and the other nodes this node's delivered frontier."""
        delivered = Delivered(self._gossip.take_frontier())
        fronts = (f"front-{front}" for front in range(self.plan.fronts))
        self._send_all([(to, delivered) for to in (*self._factory.others, *fronts)])

    def _send_all(self, messages: Outgoing) -> None:
        for to, message in messages:
            self.send(to, message)

    def validate(self) -> None:
        """Assert the invariants of the pipeline."""
        self.pipeline.validate()
