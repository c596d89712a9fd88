"""Recovery: how an incarnation of a node begins, from `Recover` until the node runs.

Takes `Recover` (master), what the disk gives, and `LastBundle` (consumer). Gives the job that
loads, `FetchLast`, and `Unloadable` or `Failed` if there is no way to go on.

The snapshot is loaded and put into new parts, in as many turns as that takes. Then the consumer is
asked what it has, which is not sent again; its first answer makes the node ready, and it runs. The
consumer may be another process at any time: so it is asked as long as it owes an answer.
"""

from __future__ import annotations

from driftline.barrier.barrier import Barrier
from driftline.deploy.node.delivery import Delivery
from driftline.deploy.node.parts import Parts
from driftline.deploy.node.restoring import Restoring
from driftline.deploy.parties.member import Member
from driftline.deploy.work.assembly import Assembly
from driftline.deploy.work.pace import Pace
from driftline.engine.errors import DriftlineError
from driftline.engine.snapshots.jobs import LoadSnapshot
from driftline.engine.wire.messages import Failed, LastBundle, Message, Recover
from driftline.engine.wire.party import Job


class Recovering(Member):
    """Base of the node: begins its incarnations, and does not know what it does while it runs."""

    def __init__(self, parts: Parts, process: str, address: str, run: str, pace: Pace) -> None:
        super().__init__(f"node-{parts.index}", process, address, run)
        self.pace = pace
        self._parts = parts
        self._begin(parts.load(), 0)

    def _begin(self, load: LoadSnapshot, start: int) -> None:
        """Drop everything volatile."""
        self.running = self.ready = False
        self._restored = False
        """Whether the assembly is the one of the snapshot, and not one in its place."""
        self._restoring = Restoring(self._parts, load, start)
        self._set_up(self._parts.assembly(), start)

    def _set_up(self, assembly: Assembly, start: int) -> None:
        """Take an assembly, and new parts around it, which count from time `start`."""
        self.assembly = assembly
        self._delivery = Delivery(assembly.barrier, self.incarnation, self.address)

    @property
    def barrier(self) -> Barrier:
        return self.assembly.barrier

    def handle(self, sender: str, message: Message) -> None:
        if isinstance(message, LastBundle):
            self._take_last(message)
        elif isinstance(message, Recover):
            self._recover(message)
        else:
            super().handle(sender, message)

    def tick(self, now: float) -> float:
        if self._restored and now >= self._delivery.ask_at:
            self._ask_consumer(now)
        return super().tick(now)

    def repeat(self) -> None:
        if self._restoring.again:
            self._restoring.again = False
            self.jobs.append(self._restoring.load)

    def done(self, job: Job, result: object) -> None:
        if job is self._restoring.load:
            self._restoring.take(result)
            self.pace.begin()
            self._restore()

    def _recover(self, message: Recover) -> None:
        if message.incarnation > self.incarnation:
            self.enter(message.incarnation)
            self.addresses.update(message.addresses)
            load = self._parts.load(message.number, message.taken)
            self._begin(load, message.time)
            self.jobs.append(load)

    def _restore(self) -> bool:
        """Load a turn's worth. Returns whether there is more to do."""
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
        """Ask for its last bundle, if it is time to."""
        question = self._delivery.question(now)
        if question is not None:
            self.send("consumer", question)

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
        if self.barrier.connected and not self.ready:
            self.ready = self.running = True
            self.hello()

    def _fail(self, error: Exception) -> None:
        self.running = False
        self.report(Failed(self.incarnation, type(error).__name__, str(error)))
