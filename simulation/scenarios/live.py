"""A simulated live input: producers that send records while the flow runs, and the front's intake.

The intake is the real `Intake` and `ReceivedSource` over a log that survives crashes; only the
sockets are simulated. Producers do everything that real ones may do: send a record, resend it, send
it before its predecessor, fall silent, end (some before others have sent all their records), and
return as a new process that resumes after the last record that the front has acknowledged. An END
from an id that has sent no record is refused.
"""

from __future__ import annotations

from collections import Counter, deque
from math import inf
from random import Random

from msgspec import Struct

from driftline.connectors.logs.inputlog import MARKS
from driftline.connectors.logs.received import ReceivedSource
from driftline.deploy.roles.intake import MAGIC, Intake, IntakeKind, decode_answer
from driftline.engine.wire.codec import pack, round_trip, unpack
from driftline.engine.wire.kinds import SenderKey
from driftline.engine.wire.role import Role
from driftline.simulation.world.disks import LogDisk

ASK_AFTER_S = 0.1
"""Seconds without an answer after which a producer sends HELLO or END again."""

INTAKE_WINDOW = 6
"""The largest number of records that an intake holds: few, so that producers have to wait."""


class ArrivalSchedule(Struct, frozen=True):
    """Arrival times of a live input's records."""

    until_s: float
    """Latest arrival time, in virtual seconds."""
    bursts: int
    """Records arrive only at `bursts` + 1 moments; 0: each record has a moment of its own."""
    skew_s: float
    """How far the front's clock is ahead of the virtual time, in seconds."""
    misbehaves: float
    """Probability, per turn of a producer, that it sends one of its records at random, and an END
    with an unknown producer id."""
    producers: int
    """Number of producers."""

    def moments(self, rng: Random, count: int) -> list[float]:
        """Return a moment for each of `count` records, in virtual seconds, ascending."""
        moments = [rng.random() for _ in range(count)]
        if self.bursts:
            moments = [round(moment * self.bursts) / self.bursts for moment in moments]
        return sorted(moment * self.until_s for moment in moments)


class LiveInput:
    """Records that producers will send to one front, and the front's input log."""

    def __init__(
        self, front: int, schedule: ArrivalSchedule, payloads: list[object], rng: Random
    ) -> None:
        self.front = front
        self.schedule = schedule
        self.log = LogDisk(f"input log of front-{front}")
        self.plans: dict[str, list[tuple[float, object]]] = {
            f"producer-{front}{'ab'[i]}": [] for i in range(schedule.producers)
        }
        """Per producer: (moment, payload) of each of its records, in order."""
        names = list(self.plans)
        for moment, payload in zip(schedule.moments(rng, len(payloads)), payloads, strict=True):
            self.plans[rng.choice(names)].append((moment, payload))
        self.acknowledged = dict.fromkeys(self.plans, 0)
        """Per producer: the number of its last acknowledged record."""

    def may_end(self, name: str) -> bool:
        """Return whether a producer may end: all its records are acknowledged, and at least one
        record of each other producer that has records."""
        acknowledged = self.acknowledged
        have_others_sent = all(acknowledged[other] for other, plan in self.plans.items() if plan)
        return have_others_sent and acknowledged[name] == len(self.plans[name])

    def records(self) -> list[tuple[int, object]]:
        """Return (time, payload) of all records and marks that were ever in the log."""
        return [(entry.time, unpack(entry.data)) for entry in self.log.all_written]

    def problem(self) -> str:
        """Return a sentence if a record was lost, duplicated or reordered in the log, else ""."""
        logged: dict[str, list[bytes]] = {name: [] for name in self.plans}
        for entry in self.log.all_written:
            if entry.producer != MARKS:
                logged[entry.producer].append(pack(unpack(entry.data)))
        for name, plan in self.plans.items():
            sent = [pack(round_trip(payload)) for _, payload in plan]
            if self.acknowledged[name] != len(sent) or len(logged[name]) != len(sent):
                return (
                    f"{name} has {len(sent)} records, but {len(logged[name])} are in the log and "
                    f"{self.acknowledged[name]} are acknowledged"
                )
            if logged[name] != sent:
                return f"the log has other records than {name}, or has them in another order"
        return ""


class SimulatedIntake(Intake):
    """Intake without a socket: while it is full, messages wait as in a socket's buffers."""

    def __init__(self, source: ReceivedSource, name: str) -> None:
        super().__init__(source, name=name, window=INTAKE_WINDOW)
        self._waiting: deque[bytes] = deque()
        self._names: dict[bytes, str] = {}
        """Route -> producer. A route is the name of a producer's process."""

    def receive(self, data: bytes, sender_key: SenderKey | None = None) -> None:
        self._waiting.append(data)
        self._take_waiting()

    def _take_waiting(self) -> None:
        while self._waiting and self.has_room():
            match unpack(self._waiting.popleft()):
                case (bytes(route), str(producer), bytes(message)):
                    self._names[route] = producer
                    self.take([route, message])

    def turn(self) -> bool:
        self._take_waiting()
        super().turn()
        for route, answer in self.answers:
            producer = self._names[route]
            self.addresses[producer] = route.decode()
            self.outbox.append((producer, answer))
        self.answers.clear()
        return bool(self._waiting) and self.has_room()


class SimulatedProducer(Role):
    """One process of a producer. It learns from the front which records are acknowledged."""

    def __init__(
        self,
        name: str,
        process: str,
        session: int,
        feed: LiveInput,
        rng: Random,
        counted: Counter[str],
    ) -> None:
        super().__init__(name)
        self._process = process
        self._session = session
        self._feed = feed
        self._plan = feed.plans[name]
        self._rng = rng
        self._counted = counted
        self._last_sent = 0
        """The number of the last record sent."""
        self._is_synced = False
        """Whether the front has answered with the number of the last acknowledged record."""
        self._ask_at = 0.0
        """When to ask for an answer, in virtual seconds."""
        self._has_ended = False
        """Whether the front has accepted the end of this producer."""

    def receive(self, data: bytes, sender_key: SenderKey | None = None) -> None:
        kind, session, acknowledged, *_ = decode_answer(data)
        if session != self._session:
            assert session < self._session, "the answer names a newer session of this producer"
            return
        stored = self._feed.log.sequences().get(self.name, 0)
        assert acknowledged <= stored, f"{self.name}: {acknowledged} acknowledged, {stored} stored"
        # The answer of a crashed front may arrive late.
        all_acknowledged = self._feed.acknowledged
        acknowledged = max(acknowledged, all_acknowledged[self.name])
        all_acknowledged[self.name] = acknowledged
        self._ask_at = self.now + ASK_AFTER_S
        self._counted["unknown producer refused"] += kind is IntakeKind.REFUSED
        self._has_ended = self._has_ended or kind is IntakeKind.ENDED
        if kind is IntakeKind.SYNC:
            self._counted["producer resynchronised"] += self._is_synced
            self._is_synced = True
            self._last_sent = acknowledged
        self._last_sent = max(self._last_sent, acknowledged)

    def tick(self, now: float) -> float:
        if self._has_ended:
            return inf
        if now >= self._ask_at:
            self._ask_at = now + ASK_AFTER_S
            if self._is_synced and self._feed.may_end(self.name):
                self._send_to_intake(IntakeKind.END, len(self._plan))
            else:
                self._send_to_intake(IntakeKind.HELLO)
        if not self._is_synced or self._last_sent == len(self._plan):
            return self._ask_at
        return min(self._plan[self._last_sent][0], self._ask_at)

    def turn(self) -> bool:
        if not self._is_synced or self._has_ended:
            return False
        while self._last_sent < len(self._plan) and self._plan[self._last_sent][0] <= self.now:
            self._last_sent += 1
            self._send_record(self._last_sent)
        if self._rng.random() < self._feed.schedule.misbehaves and self._plan:
            self._counted["producer that breaks the protocol"] += 1
            self._send_record(self._rng.randrange(len(self._plan)) + 1)
            self._send_to_intake(
                IntakeKind.END, 0, producer=f"an unknown producer beside {self.name}"
            )
        return False

    def _send_record(self, number: int) -> None:
        self._send_to_intake(IntakeKind.RECORD, number, self._plan[number - 1][1])

    def _send_to_intake(self, kind: IntakeKind, *rest: object, producer: str = "") -> None:
        message = pack((MAGIC, kind, producer or self.name, self._session, *rest))
        data = pack((self._process.encode(), self.name, message))
        self.outbox.append((f"intake-{self._feed.front}", data))
