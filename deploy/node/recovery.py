"""Recovery: how an incarnation of a node begins, from `Recover` until the node runs.

Takes: `Recover` (master), `Loaded` (disk), `LastBundle` and `Delayed` (consumer), and what a node
of the next layout takes (`joining`). Gives: `LoadSnapshot`, `FetchLast`, and `Unloadable` or
`Failed` if the node cannot go on. Invariant: the
node runs only with the whole state of the snapshot, and with the consumer's t_last.

The snapshot is loaded and restored into a new assembly, in as many turns as that takes; a node that
has joined a layout with this snapshot has it in memory. Then the
consumer is asked for its last bundle; its first answer makes the node ready, and the node runs.
"""

from __future__ import annotations

from dataclasses import replace

from driftline.barrier.barrier import Barrier
from driftline.deploy.node.components import Components
from driftline.deploy.node.delivery import Delivery
from driftline.deploy.node.joining import Joining
from driftline.deploy.node.loading import Loading
from driftline.deploy.node.restoring import Restoring
from driftline.deploy.parties.member import Member
from driftline.deploy.work.assembly import Assembly
from driftline.deploy.work.pace import Pace
from driftline.engine.errors import DriftlineError
from driftline.engine.events import Trouble
from driftline.engine.snapshots.jobs import LoadSnapshot
from driftline.engine.wire.messages import (
    Delayed,
    Failed,
    Join,
    LastBundle,
    Message,
    NoParts,
    Parts,
    Recover,
    Slice,
)
from driftline.engine.wire.party import Job

OVERDUE_S = 1.0
"""A bundle that is not stored for longer is what a node waits for."""

SILENT_AFTER = 4
"""Questions to the consumer, one a second, that may go unanswered before that is told."""

JOINING = "joining"
"""The key of what keeps the node from joining a layout among its obstacles."""

CONSUMER = "consumer"
"""The key of the node's consumer among its obstacles."""


class Recovering(Member):
    """Base of the node: begins its incarnations."""

    def __init__(
        self, components: Components, process: str, address: str, run: str, pace: Pace
    ) -> None:
        super().__init__(f"node-{components.index}", process, address, run)
        self.pace = pace
        self._components = components
        self._loading = Loading(self.name)
        self._silence = Trouble("consumer-silent")
        self._joining: Joining | None = None
        """Its way into the next layout; None if it is in no such way, or has arrived."""
        self._begin(components.load(), 0)

    def _begin(self, load: LoadSnapshot, start: int, same_code: bool = True) -> None:
        """Drop all volatile state, and begin to load a snapshot of time `start`, which was taken by
        the code of now or by other code."""
        self.running = self.ready = False
        self._restored = False
        """Whether the assembly has the state of the snapshot; otherwise it is an empty one."""
        self._restoring = Restoring(self._components, load, start, same_code)
        self._set_up(self._components.assembly(), start)

    def _set_up(self, assembly: Assembly, start: int) -> None:
        """Begin to work with an assembly, from time `start`."""
        self.assembly = assembly
        self._delivery = Delivery(assembly.barrier, self.incarnation, self.address)

    @property
    def state(self) -> str:
        """What it is doing, for people."""
        if self.stopped:
            return "over"
        if self.running:
            overdue = self.now - self._delivery.sent_at > OVERDUE_S
            waits = self.barrier.outstanding is not None and overdue
            return "waiting for the consumer" if waits else "running"
        if self._restored:
            return "waiting for the consumer"
        if self._joining is not None:
            return "joining"
        return f"loading {self._restoring.percent} %" if self.incarnation else "starting"

    @property
    def barrier(self) -> Barrier:
        return self.assembly.barrier

    def handle(self, sender: str, message: Message) -> None:
        if isinstance(message, LastBundle):
            self._take_last(message)
        elif isinstance(message, Delayed):
            if message.incarnation == self.incarnation:
                self._delivery.unanswered = 0
                self.obstacles[CONSUMER] = f"{self.name} waits for its consumer: {message.reason}"
        elif isinstance(message, Recover):
            self._recover(message)
        elif isinstance(message, Join):
            self._join(message)
        elif isinstance(message, Parts | Slice | NoParts):
            if self._joining is not None:
                self._joining.answer(sender, message, self.send, self.now)
                self._take_jobs(self._joining)
        else:
            super().handle(sender, message)

    def tick(self, now: float) -> float:
        if self._restored and now >= self._delivery.ask_at:
            self._ask_consumer(now)
        if self._joining is not None:
            self._joining.look(self.send, now)
            self._take_jobs(self._joining)
        elif not self.running:
            self._loading.look(now, self._restoring)
        return super().tick(now)

    def repeat(self) -> None:
        if self._restoring.load_again:
            self._restoring.load_again = False
            self.jobs.append(self._restoring.load)
        if self._joining is not None:
            self._joining.tell(self.send)

    def done(self, job: Job, result: object) -> None:
        if job is self._restoring.load:
            self.note(job, result)
            self._restoring.take(result)
            self.pace.begin()
            self._restore()
        elif self._joining is not None and self._joining.done(job, result, self.send, self.now):
            self.note(job, result)
            self._take_jobs(self._joining)

    def _join(self, message: Join) -> None:
        """Get the state of a node of the next layout. A node that has begun an incarnation is in
        its layout already."""
        if self.incarnation or self.stopped or self._components.index not in message.layout:
            return
        self.addresses.update(message.sources)
        before = self._joining
        if before is None or (before.layout, before.epoch) != (message.layout, self.epoch):
            about = self.epoch, self.process, self.address
            self._joining = before = Joining(self._components, message, *about)
        before.join(message, self.send, self.now)
        self._take_jobs(before)

    def _take_jobs(self, joining: Joining) -> None:
        self.obstacles.pop(JOINING, None)
        if joining.trouble:
            self.obstacles[JOINING] = f"{self.name} reads the state anew: {joining.trouble}"
        self.jobs += joining.jobs
        joining.jobs = []

    def _recover(self, message: Recover) -> None:
        if message.incarnation > self.incarnation:
            self.enter(message.incarnation)
            self.addresses.update(message.addresses)
            if message.layout:
                self._components = replace(self._components, layout=message.layout)
            load = self._components.load(message.number, message.taken)
            self._begin(load, message.time, bool(message.same_code))
            self._loading.begin(self.now, message.number)
            joining, self._joining = self._joining, None
            if joining is not None and joining.has(message.layout, message.number, message.taken):
                self._restoring.assembly = joining.assembly_from(message.time)
                self._restore()
            else:
                self.jobs.append(load)

    def _restore(self) -> bool:
        """Restore for one turn. Returns whether there is more to restore."""
        if self._joining is not None:
            more = self._joining.work(self.pace, self.send, self.now)
            self._take_jobs(self._joining)
            return more
        restoring = self._restoring
        trouble = restoring.work(self.pace, self.incarnation)
        if trouble is not None:
            self.report(trouble)
        if restoring.assembly is not None and not self._restored:
            self._restored = True
            self._set_up(restoring.assembly, restoring.start)
            self._ask_consumer(self.now)
        return restoring.under_way

    def _ask_consumer(self, now: float) -> None:
        """Ask the consumer for its last bundle, if an answer is overdue."""
        question = self._delivery.question(now)
        if question is None:
            self._silence.over(now, f"the consumer of {self.barrier.name} answers again")
            return
        self.send("consumer", question)
        if self._delivery.unanswered > SILENT_AFTER:
            text = f"the consumer of {self.barrier.name} does not answer; asking again"
            self._silence.failed(now, text, barrier=self.barrier.name)

    def _take_last(self, message: LastBundle) -> None:
        if not self._restored:
            return
        try:
            again = self._delivery.last(message)
        except DriftlineError as error:
            self._fail(error)
            return
        if again is not None:
            self.send("consumer", again)
        if self.barrier.outstanding is None:  # else it can be read, which does not say much
            self.obstacles.pop(CONSUMER, None)
        if self.barrier.connected and not self.ready:
            self.ready = self.running = True
            keys = self.assembly.figures()["keys"]
            self._loading.end(self.now, self._restoring.bytes, keys, self.barrier)
            self.hello()

    def _fail(self, error: Exception) -> None:
        self.running = False
        self.report(Failed(self.incarnation, type(error).__name__, str(error)))
