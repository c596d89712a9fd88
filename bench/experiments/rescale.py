"""Rescaling under load: other numbers of nodes, one after the other, with much state.

Records put a text into the state of a key each, first for all keys, then for some, evenly in time.
The output of a record is its key and how many records the key has had: so a lost output, and one
that comes twice, are seen. The pause of a change is the time from the last output of the nodes
before to the first one of the nodes after it; latencies are those of records that were sent from
the request until then, while the state is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from random import Random
from statistics import median
from time import monotonic

from rich.console import Console
from rich.table import Table

from driftline.bench.systems.consumers import PassingConsumer
from driftline.bench.systems.engine import Engine
from driftline.deploy.parties.window import WINDOW
from driftline.engine.errors import Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.state.managed import ValueState
from driftline.engine.ui.consoles import new_table
from driftline.engine.wire.bundles import from_blob
from driftline.engine.wire.messages import Bundle

TEXT_BYTES = 1000

CALM_S = 3.0
"""How long records come before the first change, and after each."""

PATIENCE_S = 180.0
"""How long a change may take."""

ASK_EVERY_S = 0.1


def _kept(record: dict[str, object], kept: ValueState[object]) -> tuple[object, int]:
    before = kept.get()
    count = before[0] + 1 if isinstance(before, tuple) else 1
    kept.set((count, record["text"]))
    return record["key"], count


flow = Flow("texts that are kept")
flow.source("records").key_by("key").scan(_kept, ValueState("kept")).sink("counts")


@dataclass(frozen=True, slots=True)
class Change:
    """What came of one change of the number of nodes."""

    before: int
    after: int
    took_s: float
    """From the request until the next nodes had an output."""
    pause_ms: float
    median_ms: float
    longest_ms: float
    """Latencies of the records that were sent meanwhile."""


@dataclass(frozen=True, slots=True)
class Rescaling:
    """The figures of a run; `changes`: in order."""

    state_mb: float
    rate: float
    changes: list[Change]
    lost: int
    duplicated: int

    def as_json(self) -> dict[str, object]:
        """The figures as a JSON object."""
        return asdict(self)

    def table(self) -> Table:
        """The figures as a table for a terminal."""
        table = new_table(
            f"Rescaling with {self.state_mb:.0f} MB of state, {self.rate:g} records a second",
            ["nodes"],
            ["took s", "pause ms", "median ms", "longest ms"],
        )
        for change in self.changes:
            table.add_row(
                f"{change.before} to {change.after}",
                f"{change.took_s:.1f}",
                f"{change.pause_ms:.0f}",
                f"{change.median_ms:.1f}",
                f"{change.longest_ms:.0f}",
            )
        return table

    def problems(self) -> list[str]:
        """What must not be."""
        wrong = {"lost": self.lost, "duplicated": self.duplicated}
        return [f"{count} outputs were {what}" for what, count in wrong.items() if count]


class _Consumer(PassingConsumer):
    """Counts the outputs of each key, and notes when those of each barrier came."""

    def __init__(self, keys: int) -> None:
        super().__init__()
        self.counts = [0] * keys
        self.outputs = self.wrong = 0
        self.first: dict[str, float] = {}
        """Barrier -> when its first outputs came; `latest`: its last ones."""
        self.latest: dict[str, float] = {}
        self.arrived: dict[tuple[int, int], float] = {}
        """(key, count) -> when that output came; only while `notes`."""
        self.notes = False

    def take(self, bundle: Bundle) -> None:
        now = monotonic()
        if bundle.blobs:
            self.first.setdefault(bundle.barrier, now)
            self.latest[bundle.barrier] = now
        for blob in bundle.blobs:
            for item in from_blob(blob):
                assert isinstance(item.value, tuple)
                key, count = item.value
                self.outputs += 1
                if count == self.counts[key] + 1:
                    self.counts[key] = count
                else:
                    self.wrong += 1
                if self.notes:
                    self.arrived[key, count] = now


def measure_rescaling(
    numbers: Sequence[int], state_mb: int, rate: float, seed: int, console: Console
) -> Rescaling:
    """Begin with the first number of nodes, and come to the others, one after the other."""
    run = _Run(numbers[0], state_mb * 1_000_000 // TEXT_BYTES, rate, seed)
    with run.engine:
        run.fill()
        console.print(f"{run.sent:,} records of {TEXT_BYTES} bytes are in the state")
        run.go_on(CALM_S)
        changes = []
        for before, after in pairwise(numbers):
            change = run.change(before, after)
            changes.append(change)
            console.print(f"{before} to {after} nodes: a pause of {change.pause_ms:.0f} ms")
            run.go_on(CALM_S)
        run.end()
    consumer = run.consumer
    missing = run.sent - sum(consumer.counts)
    return Rescaling(state_mb, rate, changes, missing, consumer.outputs - sum(consumer.counts))


class _Run:
    """A run with `keys` keys; `rate`: records a second once all keys have a text."""

    def __init__(self, nodes: int, keys: int, rate: float, seed: int) -> None:
        self.consumer = _Consumer(keys)
        self.engine = Engine(
            (),
            "exactly-once",
            nodes=nodes,
            flow="driftline.bench.experiments.rescale",
            consumer=self.consumer,
        )
        self.sent = 0
        self._given = [0] * keys
        self._sent_at: dict[tuple[int, int], float] = {}
        self._rate = rate
        self._chance = Random(seed)
        self._due_at = self._ask_at = 0.0

    def fill(self) -> None:
        """Give each key its first text."""
        for key in range(len(self._given)):
            self._put(key)
            while self.sent - self.consumer.outputs > 4 * WINDOW:
                self._step()
        while self.consumer.outputs < self.sent:
            self._step()

    def go_on(self, seconds: float) -> None:
        """Let records come evenly."""
        until = monotonic() + seconds
        while monotonic() < until:
            self._step_evenly()

    def change(self, before: int, after: int) -> Change:
        """Come to another number of nodes."""
        consumer, began = self.consumer, monotonic()
        known = set(consumer.latest)
        consumer.notes = True
        self.engine.cluster.resize(after)
        while not consumer.latest.keys() - known:
            self._step_evenly()
            if monotonic() > began + PATIENCE_S:
                told = self.engine.watch.reports["master"]
                raise Unavailable(
                    f"the run has not come to {after} nodes within {PATIENCE_S:g} s: "
                    f"{told.resizing or told.refused or told.waits_for}"
                )
        first = min(at for name, at in consumer.first.items() if name not in known)
        while consumer.outputs < self.sent:
            self._step()
        last = max(at for name, at in consumer.latest.items() if name in known)
        latencies = [1000 * (consumer.arrived[record] - at) for record, at in self._sent_at.items()]
        consumer.notes = False
        consumer.arrived.clear()
        self._sent_at.clear()
        found = 1000 * (first - last), median(latencies), max(latencies)
        return Change(before, after, first - began, *found)

    def end(self) -> None:
        """Let all outputs come."""
        until = monotonic() + PATIENCE_S
        while sum(self.consumer.counts) < self.sent and monotonic() < until:
            self._step()

    def _step_evenly(self) -> None:
        now = monotonic()
        self._due_at = max(self._due_at, now - 1.0)
        while self._due_at <= now:
            self._due_at += 1 / self._rate
            key = self._chance.randrange(len(self._given))
            self._put(key)
            if self.consumer.notes:
                self._sent_at[key, self._given[key]] = now
        self._step(max(0.0, self._due_at - monotonic()))

    def _put(self, key: int) -> None:
        self._given[key] += 1
        self.sent += 1
        self.engine.put({"key": key, "text": f"{self.sent:010}" + "x" * (TEXT_BYTES - 10)})

    def _step(self, wait_s: float = 0.01) -> None:
        engine, now = self.engine, monotonic()
        engine.runtime.step(wait_s=wait_s)
        if now >= self._ask_at:
            self._ask_at = now + ASK_EVERY_S
            engine.watch.addresses["master"] = engine.front.addresses["master"]
            engine.watch.ask()
            engine.cluster.supervise(engine.front.settled, engine.front.furthest, engine.watch)
