"""A simulated live input: records that come while the flow runs, and a log that forgets.

The log is what a live front writes: it survives a crash of the front, except for a random tail of
what was not durable yet. Records get their times from a hybrid clock, one more than the last or
now in microseconds; also a promise to give no time below some time counts only once it is durable,
because a front that comes back must keep it. Producers try again until a front takes their record;
what is forgotten afterwards is lost, and nobody may ever see an output of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from random import Random

from deploy.simulation.world import World
from engine.labels import INFINITY
from engine.sources import BadRecord, LiveSource

TRY_AGAIN_S = 0.02


@dataclass(frozen=True, slots=True)
class Pace:
    """When the records of a live input come. `skew_s`: how far its clock is ahead."""

    until_s: float
    bursts: int
    """Moments at which all records come; 0: each at its own."""
    sync_s: float
    """How long records wait for their group commit, on average."""
    skew_s: float

    def moments(self, chance: Random, count: int) -> list[float]:
        """A moment for each record."""
        moments = [chance.random() for _ in range(count)]
        if self.bursts:
            moments = [round(moment * self.bursts) / self.bursts for moment in moments]
        return sorted(moment * self.until_s for moment in moments)


class LiveInput:
    """The log of one live front, and the producers that write to it."""

    def __init__(
        self, world: World, host: str, pace: Pace, payloads: list[object], chance: Random
    ) -> None:
        self.world = world
        self.host = host
        self.pace = pace
        self.chance = chance
        self.records: list[tuple[int, object]] = []
        """Everything that was not forgotten, with times; trimmed ones too, for the judge."""
        self.next = 1
        self.trimmed = 0
        self.durable = (0, 1)
        """(number of records, `next`) as they are on the disk."""
        self.to_come = len(payloads)
        self.source = SimulatedLive(self)
        for moment, payload in zip(pace.moments(chance, len(payloads)), payloads, strict=True):
            self._come(moment, payload)

    def open(self) -> SimulatedLive:
        """The log as a front finds it that has just started."""
        kept, next_time = self.durable
        forgotten = self.chance.randrange(len(self.records) - kept + 1)
        if forgotten:
            del self.records[-forgotten:]
            self.world.counted["forgotten record"] += forgotten
            self.world.tell(f"{self.host} has forgotten {forgotten} records")
        self.next = max(next_time, self.records[-1][0] + 1 if self.records else 1)
        self.durable = len(self.records), self.next
        self.source = SimulatedLive(self)
        return self.source

    @property
    def now(self) -> int:
        """The host's clock in microseconds."""
        return int((self.world.now + self.pace.skew_s) * 1e6)

    def commit(self, source: SimulatedLive) -> None:
        """Group commit: what has been written by now becomes durable."""
        world, host = self.world, self.world.hosts[self.host]
        if source is not self.source or host.party is None:
            return
        if world.now < host.paused_until:
            world.at(host.paused_until - world.now, lambda: self.commit(source))
            return
        if world.happens(world.faults.crash_before_job):
            world.crash(host, "before group commit")
            return
        self.durable = len(self.records), self.next
        world.counted["group commit"] += 1
        if world.happens(world.faults.crash_after_job):
            world.crash(host, "after group commit")
            return
        source.committed()
        world.wake(self.host)

    def _come(self, delay: float, payload: object) -> None:
        self.world.at(delay, lambda: self._write(payload))

    def _write(self, payload: object) -> None:
        host = self.world.hosts[self.host]
        if host.party is None or self.world.now < host.paused_until:
            self._come(TRY_AGAIN_S, payload)
            return
        time = max(self.next, self.now)
        self.next = time + 1
        self.records.append((time, payload))
        self.to_come -= 1
        self.world.tell(f"{self.host} is given {payload} and gives it time {time}")
        self.source.changed()
        self.world.wake(self.host)


class SimulatedLive(LiveSource):
    """The log as one process of the front sees it."""

    def __init__(self, log: LiveInput) -> None:
        self.name = f"live input of {log.host}"
        self.log = log
        self._committing = False
        self.committed()

    def committed(self) -> None:
        """What has been written is durable."""
        self._committing = False
        self.durable = INFINITY if not self.log.to_come else self.log.durable[1]

    def changed(self) -> None:
        """There is something to commit."""
        if not self._committing:
            self._committing = True
            wait = self.log.chance.expovariate(1 / self.log.pace.sync_s)
            self.log.world.at(wait, lambda: self.log.commit(self))

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        assert start >= self.log.trimmed, (
            f"{start} is read again after {self.log.trimmed} was trimmed"
        )
        after = start - 1
        while True:
            at = bisect_right(self.log.records, after, key=itemgetter(0))
            if at < len(self.log.records):
                after = self.log.records[at][0]
                yield self.log.records[at]
            elif not self.log.to_come:
                return
            else:
                yield None

    def move_to(self, time: int) -> int:
        if time > self.log.next:
            self.log.next = max(time, self.log.now)
            self.changed()
        return self.log.next

    def trim(self, time: int) -> None:
        self.log.trimmed = max(self.log.trimmed, time)
