"""A room for a few parties: one step at a time, in an order that a seed chooses.

Smaller than the simulation, for tests that look at the dialogue itself: every message that is
handed over is in `said`, every durable job in `done`, and a test may hold a disk back, lose what
is on a channel, or crash somebody at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from driftline.connectors.sinks import MemoryConsumer
from driftline.coordinator.registry import ClusterState, WriteState
from driftline.deploy.node.backpressure import WAITING_BYTES
from driftline.deploy.node.node import Node
from driftline.deploy.roles.consumer import ConsumerServer
from driftline.deploy.roles.front import Front
from driftline.deploy.roles.master import Master
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import get_policy
from driftline.engine.snapshots.store import PartStore
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.messages import Message, MessageHeader, decode
from driftline.engine.wire.role import DurableJob, Role
from driftline.simulation.world.disks import MemoryKeyValue

STEP_S = 0.005


class Timed:
    """A source of payloads at given times."""

    name = "timed"

    def __init__(self, records: list[tuple[int, object]]) -> None:
        self._records = records

    def read(self, start: int) -> Iterator[tuple[int, object]]:
        return (record for record in self._records if record[0] >= start)

    def progress(self) -> tuple[int, int] | None:
        return None

    def identity(self) -> str:
        return repr(self._records)


class Room:
    """Parties, the channels between them, and their disks."""

    def __init__(
        self,
        flow: Flow,
        inputs: list[list[tuple[int, object]]],
        seed: int = 0,
        *,
        mode: str = "exactly-once",
        nodes: int = 2,
        interval: float = 0.3,
        window: int = 2,
        dead_letters: bool = False,
        waiting_bytes: int = WAITING_BYTES,
    ) -> None:
        self.chance = Random(seed)
        self.plan = make_plan(flow)
        self.policy = get_policy(mode)
        self.inputs = inputs
        self.interval = interval
        self.window = window
        self.dead_letters = dead_letters
        self.waiting_bytes = waiting_bytes
        self.consumer = MemoryConsumer()
        self.now = 0.0
        self.said: list[tuple[str, str, MessageHeader, Message]] = []
        """(from, to, header, message), in the order in which they were handed over."""
        self.done: list[tuple[str, DurableJob]] = []
        """(who, job), in the order in which they became durable."""
        self.silent: set[str] = set()
        """Parties that are not given a turn."""
        self.held_disks: set[str] = set()
        self.channels: dict[tuple[str, str], list[bytes]] = {}
        self.jobs: dict[str, list[DurableJob]] = {}
        self.state: ClusterState | None = None
        self.nodes = [f"node-{i}" for i in range(nodes)]
        self.fronts = [f"front-{i}" for i in range(len(inputs))]
        self.stores = {name: PartStore(MemoryKeyValue(name), flow, 2) for name in self.nodes}
        self.starts: dict[str, int] = {}
        self.parties: dict[str, Role] = {}
        for name in ["consumer", "master", *self.nodes, *self.fronts]:
            self.start(name)

    # What happens.

    def start(self, name: str) -> None:
        """Start a party as a new process."""
        self.starts[name] = self.starts.get(name, 0) + 1
        process = f"{name}#{self.starts[name]}"
        nodes = len(self.nodes)
        if name == "consumer":
            self.parties[name] = ConsumerServer(lambda _: self.consumer)
        elif name == "master":
            state = self.state or ClusterState(self.plan.identity())
            self.parties[name] = Master(nodes, self.plan, self.policy, state, self.interval)
        elif name in self.nodes:
            index = self.nodes.index(name)
            self.parties[name] = Node(
                index,
                nodes,
                self.plan,
                self.policy,
                self._new_id,
                process=process,
                dead_letters=self.dead_letters,
                waiting_bytes=self.waiting_bytes,
            )
        else:
            index = self.fronts.index(name)
            self.parties[name] = Front(
                index,
                nodes,
                self.plan,
                self.policy,
                Timed(self.inputs[index]),
                self._new_id,
                process=process,
                window=self.window,
            )

    def crash(self, name: str) -> None:
        """Lose a process with everything volatile and what is on its channels; start it again."""
        for channel in self.channels:
            if name in channel:
                self.channels[channel] = []
        self.jobs[name] = []
        self.start(name)

    def lose(self, sender: str, to: str) -> int:
        """Lose what is on a channel. Returns how many messages that were."""
        lost = self.channels.pop((sender, to), [])
        return len(lost)

    def step(self) -> None:
        """One party is handed a message or gets its turn, or one job is carried out."""
        self.now += STEP_S
        names = [name for name in self.parties if name not in self.silent]
        choices: list[Callable[[], None]] = [partial(self._turn, name) for name in names]
        choices += [
            partial(self._hand_over, channel)
            for channel, waiting in self.channels.items()
            if waiting and channel[1] not in self.silent
        ] * 2
        choices += [
            partial(self._execute_job, name)
            for name, jobs in self.jobs.items()
            if jobs and name not in self.held_disks
        ]
        self.chance.choice(choices)()

    def run(self, until: Callable[[], bool], steps: int = 30_000) -> None:
        """Step until a condition holds."""
        for _ in range(steps):
            if until():
                return
            self.step()
        raise AssertionError(f"not after {steps} steps: {self.master.coordinator.phase}")

    def _turn(self, name: str) -> None:
        party = self.parties[name]
        party.now = self.now
        party.tick(self.now)
        party.turn()
        self._collect(name)
        if isinstance(party, Node):
            party.validate()
        if isinstance(party, Master) and party.broken:
            self.crash(name)  # whoever watches over processes starts another one

    def _hand_over(self, channel: tuple[str, str]) -> None:
        sender, to = channel
        data = self.channels[channel].pop(0)
        self.said.append((sender, to, *decode(data)))
        self.parties[to].receive(data)
        self._collect(to)

    def _execute_job(self, name: str) -> None:
        job = self.jobs[name].pop(0)
        result: object = None
        if isinstance(job, WriteState):
            if job.state.version == (self.state.version if self.state else 0) + 1:
                self.state = job.state
            else:
                result = StateMismatch("another master has taken over")
        else:
            result = self.stores[name].execute_job(job)
        self.done.append((name, job))
        self.parties[name].on_job_done(job, result)
        self._collect(name)

    def _collect(self, name: str) -> None:
        party = self.parties[name]
        for to, data in party.outbox:
            self.channels.setdefault((name, to), []).append(data)
        party.outbox.clear()
        self.jobs.setdefault(name, []).extend(party.jobs)
        party.jobs.clear()

    def _new_id(self) -> int:
        return self.chance.getrandbits(63) or 1

    # What can be seen.

    @property
    def master(self) -> Master:
        """The master of the moment."""
        found = self.parties["master"]
        assert isinstance(found, Master)
        return found

    @property
    def values(self) -> list[object]:
        """What the consumer has."""
        return [item.value for item in self.consumer.items]

    @property
    def items(self) -> list[Item]:
        """What the consumer has, in label order."""
        return sorted(self.consumer.items, key=lambda item: item.label)

    def has(self, count: int) -> Callable[[], bool]:
        """Whether the consumer has so many items."""
        return lambda: len(self.consumer.items) >= count

    def stopped(self) -> bool:
        """Whether the run is over."""
        return self.master.stopped

    def heard(self, kind: type[Message], since: int = 0) -> list[tuple[int, str, str, Message]]:
        """(when, from, to, message) of one kind of message."""
        return [
            (when, sender, to, message)
            for when, (sender, to, _, message) in enumerate(self.said[since:], since)
            if isinstance(message, kind)
        ]
