"""Cluster of roles that runs one step at a time, in an order that a seed determines.

Smaller than the simulation, for tests of the messages themselves: `messages` has every delivered
message, `durable_jobs` every completed job. A test can hold a disk, drop the contents of a channel,
or crash a process at any step.
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
from driftline.engine.wire.role import IOJob, Role
from driftline.simulation.world.disks import MemoryKeyValue

STEP_S = 0.005


class TimedSource:
    """Source of payloads at given times."""

    name = "timed"

    def __init__(self, records: list[tuple[int, object]]) -> None:
        self._records = records

    def read(self, start: int) -> Iterator[tuple[int, object]]:
        return (record for record in self._records if record[0] >= start)

    def progress(self) -> tuple[int, int] | None:
        return None

    def identity(self) -> str:
        return repr(self._records)


class SteppedCluster:
    """Roles, the channels between them, and their disks."""

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
        self.messages: list[tuple[str, str, MessageHeader, Message]] = []
        """(from, to, header, message), in the order of delivery."""
        self.durable_jobs: list[tuple[str, IOJob]] = []
        """(name of the role, job), in the order of completion."""
        self.silent: set[str] = set()
        """Roles that get no turn and no messages."""
        self.held_disks: set[str] = set()
        self.channels: dict[tuple[str, str], list[bytes]] = {}
        self.jobs: dict[str, list[IOJob]] = {}
        self.state: ClusterState | None = None
        self.nodes = [f"node-{i}" for i in range(nodes)]
        self.fronts = [f"front-{i}" for i in range(len(inputs))]
        self.stores = {name: PartStore(MemoryKeyValue(name), flow, 2) for name in self.nodes}
        self.starts: dict[str, int] = {}
        self.parties: dict[str, Role] = {}
        for name in ["consumer", "master", *self.nodes, *self.fronts]:
            self.start(name)

    # Actions.

    def start(self, name: str) -> None:
        """Start a role as a new process."""
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
                TimedSource(self.inputs[index]),
                self._new_id,
                process=process,
                window=self.window,
            )

    def crash(self, name: str) -> None:
        """Crash a process, losing its volatile state and its channels, and start it again."""
        for channel in self.channels:
            if name in channel:
                self.channels[channel] = []
        self.jobs[name] = []
        self.start(name)

    def drop_channel(self, sender: str, to: str) -> int:
        """Drop the messages on a channel; return their number."""
        lost = self.channels.pop((sender, to), [])
        return len(lost)

    def step(self) -> None:
        """Deliver one message, give one role a turn, or carry out one job."""
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
            self.crash(name)  # a supervisor starts another process

    def _hand_over(self, channel: tuple[str, str]) -> None:
        sender, to = channel
        data = self.channels[channel].pop(0)
        self.messages.append((sender, to, *decode(data)))
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
        self.durable_jobs.append((name, job))
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

    # Observations.

    @property
    def master(self) -> Master:
        """Return the current master."""
        found = self.parties["master"]
        assert isinstance(found, Master)
        return found

    @property
    def values(self) -> list[object]:
        """Return the values that the consumer has stored."""
        return [item.value for item in self.consumer.items]

    @property
    def items(self) -> list[Item]:
        """Return the items that the consumer has stored, in label order."""
        return sorted(self.consumer.items, key=lambda item: item.label)

    def has(self, count: int) -> Callable[[], bool]:
        """Return a condition: the consumer has stored at least `count` items."""
        return lambda: len(self.consumer.items) >= count

    def stopped(self) -> bool:
        """Return whether the run is over."""
        return self.master.stopped

    def messages_of(
        self, kind: type[Message], since: int = 0
    ) -> list[tuple[int, str, str, Message]]:
        """Return (number, from, to, message) of all messages of a kind."""
        return [
            (when, sender, to, message)
            for when, (sender, to, _, message) in enumerate(self.messages[since:], since)
            if isinstance(message, kind)
        ]
