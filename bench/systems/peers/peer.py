"""What a peer is, and how the load is put on it: in a process of its own, by two threads.

Peers are libraries called in the process of the load, without a network, a parser of HTTP or
another process between: that is their best case. A thread writes and one asks, so that a commit
holds up no query more than the library itself does; both keep to their schedules.

Whoever has written asks for the word that only this document has, as with Driftline; the same
limits, the same documents, all ids new. A peer only has to insert, though Driftline replaces what
is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter, sleep
from typing import Protocol

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.load import Arriving, Load, Observed
from driftline.bench.measuring.loops import undisturbed
from driftline.bench.measuring.meter import percentiles
from driftline.bench.measuring.queries import Query

BULK = 1000
"""Documents of a commit while those of before are put in."""


class Peer(Protocol):
    """A peer, in a directory of its own."""

    commit_every_s: float
    """0: each document has a commit of its own; else what has come since then is committed."""

    def write(self, documents: Documents) -> None:
        """Put documents in. When it returns they are durable, and can be found."""

    def asker(self) -> Callable[[Query], list[str]]:
        """What gives the ids of the first hits of a query; called in the thread that asks."""

    def figures(self) -> dict[str, float]:
        """Figures of it, by name."""

    def close(self) -> None:
        """End it."""


def bytes_in(directory: Path) -> int:
    """How much the files in a directory take; a peer's own threads may remove some meanwhile."""
    size = 0
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            size += path.stat().st_size if path.is_file() else 0
    return size


def observe(peer: Peer, load: Load) -> Observed:
    """Fill a peer and put the load on it."""
    observed = Observed()
    documents = load.documents
    began = perf_counter()
    for first in range(0, len(documents), BULK):
        peer.write(documents[first : first + BULK])
    if documents:
        observed.fill_per_s = len(documents) / (perf_counter() - began)
    with undisturbed():
        drive = _Drive(peer, load, observed)
        searching = threading.Thread(target=drive.run, args=(drive.search,))
        searching.start()
        drive.run(drive.write)
        searching.join()
    commits = percentiles(drive.commits)
    observed.figures = {
        **peer.figures(),
        "commit_p50_ms": commits["p50_ms"],
        "commit_p99_ms": commits["p99_ms"],
        "behind_s": max(0.0, drive.ended - load.ends_s),
    }
    return observed


class _Drive:
    def __init__(self, peer: Peer, load: Load, observed: Observed) -> None:
        self._peer = peer
        self._load = load
        self._observed = observed
        self._began = perf_counter() + 0.1
        self.commits: list[float] = []
        """How long each commit took by itself, in ms: what was due meanwhile waited longer."""
        self.ended = 0.0
        """When the last document was found; after its due time, if commits take too long."""

    def run(self, does: Callable[[], None]) -> None:
        """Count what a thread cannot do as an error."""
        try:
            does()
        except Exception as error:
            self._observed.errors[f"{type(error).__name__}: {error}"] += 1

    def write(self) -> None:
        """The thread that writes."""
        ask = self._peer.asker()
        waiting: list[Arriving] = []
        tick = 0.0
        for each in self._load.arriving:
            every = self._peer.commit_every_s
            while every and waiting and tick < each.due_s:
                self._wait(tick)
                self._commit(waiting, ask)
                waiting = []
            self._wait(each.due_s)
            self._late(each.due_s)
            if not waiting:
                now = self._now()
                tick = now - now % every + every if every else now
            waiting.append(each)
            if not every:
                self._commit(waiting, ask)
                waiting = []
        if waiting:
            self._wait(tick)
            self._commit(waiting, ask)

    def search(self) -> None:
        """The thread that asks."""
        ask = self._peer.asker()
        for due_s, query in self._load.asked:
            self._wait(due_s)
            self._late(due_s)
            ask(query)
            if due_s >= self._load.warmup_s:
                self._observed.queries.setdefault(query.kind, []).append(self._since(due_s))

    def _commit(self, batch: Sequence[Arriving], ask: Callable[[Query], list[str]]) -> None:
        began = self._now()
        self._peer.write([(each.id, each.text) for each in batch])
        durable = self._now()
        self.commits.append(1000 * (durable - began))
        for each in batch:
            found = ask(Query("term", [each.word]))
            if found != [each.id]:
                self._observed.errors["not found"] += 1
            elif each.due_s >= self._load.warmup_s:
                self._observed.acknowledged.append(1000 * (durable - each.due_s))
                self._observed.freshness.append(self._since(each.due_s))
        self.ended = self._now()

    def _now(self) -> float:
        return perf_counter() - self._began

    def _since(self, due_s: float) -> float:
        return 1000 * (self._now() - due_s)

    def _wait(self, due_s: float) -> None:
        while (pause := due_s - self._now()) > 0:
            sleep(pause)

    def _late(self, due_s: float) -> None:
        if due_s >= self._load.warmup_s:
            self._observed.late.append(self._since(due_s))
