"""A run in the process of the caller: where its records come from and its outputs go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from time import monotonic

from driftline.deploy.api.cluster import Cluster, Patience
from driftline.deploy.api.inputs import Pulled
from driftline.deploy.api.outputs import Lmdb, Merged, RunSummary, consumers_in, counted
from driftline.deploy.run.asides import Asides
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import plan
from driftline.engine.labels import INFINITY
from driftline.engine.order.steps import FAILURES
from driftline.engine.policy import Policy
from driftline.engine.sinks.lines import DEAD_LETTERS
from driftline.engine.sources import BadRecord, LiveSource, Source
from driftline.engine.wire.bundles import Item

WRITTEN_S = 0.01
"""How long a message takes, in virtual time, where outputs are written: many at once."""


class Here:
    """A run in this process."""

    def __init__(
        self,
        flow: Flow,
        sources: Sequence[Source | LiveSource],
        chosen: Policy,
        nodes: int,
        checkpoint_s: float,
        dead_letters: bool,
    ) -> None:
        self._flow = flow
        self._sources = sources
        self._policy = chosen
        self._nodes = nodes
        self._dead_letters = dead_letters
        self._bad = [0] * len(sources)
        self._began = monotonic()
        self._make = partial(
            Cluster,
            flow,
            sources,
            policy=chosen,
            nodes=nodes,
            checkpoint_s=checkpoint_s,
            dead_letters=dead_letters,
        )

    def items(self) -> Iterator[Item]:
        """The outputs, each as soon as it is final."""
        merged = Merged()
        cluster = self._cluster(merged)
        return self._items(cluster, merged)

    def appended_to(self, items: list[Item]) -> RunSummary:
        """Append the outputs to a list."""
        merged = Merged()
        cluster = self._cluster(merged)
        before, failed = len(items), 0
        for item in self._items(cluster, merged):
            items.append(item)
            failed += item.sink == FAILURES
        return self._summary(cluster, len(items) - before - failed, failed)

    def into(self, output: Path | Lmdb) -> RunSummary:
        """Leave the outputs in a directory."""
        read = "|".join(source.identity() for source in self._sources)
        identity = f"{plan(self._flow).identity()}|{self._policy.name}|{self._nodes}|here, {read}"
        asides: list[Asides] = []
        if isinstance(output, Path):
            asides = [
                Asides(output / DEAD_LETTERS / f"input-{i}.jsonl")
                for i in range(len(self._sources))
            ]
        make = consumers_in(output, self._flow, identity)
        cluster = self._make(
            consumer=make,
            delay_s=WRITTEN_S,
            on_bad=[aside.add for aside in asides] if self._dead_letters else (),
        )
        self._connect(cluster)
        try:
            for _ in _progress(cluster):
                pass
        finally:
            cluster.close()
        if asides:
            self._bad = [aside.count for aside in asides]
        return self._summary(cluster, *counted(output))

    def _cluster(self, merged: Merged) -> Cluster:
        on_bad = [partial(self._set_aside, front) for front in range(len(self._sources))]
        cluster = self._make(
            consumer=lambda barrier: merged, on_bad=on_bad if self._dead_letters else ()
        )
        self._connect(cluster)
        return cluster

    def _connect(self, cluster: Cluster) -> None:
        """Let iterators know how far the run has got; without an order that is not known."""
        if self._policy.ordered:
            for source in self._sources:
                if isinstance(source, Pulled):
                    source.delivered = lambda: cluster.delivered

    def _items(self, cluster: Cluster, merged: Merged) -> Iterator[Item]:
        for delivered in _progress(cluster):
            yield from merged.take(delivered if self._policy.ordered else INFINITY + 1)

    def _set_aside(self, front: int, records: Sequence[BadRecord]) -> None:
        self._bad[front] += len(records)

    def _summary(self, cluster: Cluster, outputs: int, failed: int) -> RunSummary:
        seconds = monotonic() - self._began
        return RunSummary(cluster.taken, outputs, failed, sum(self._bad), seconds, processes=False)


def _progress(cluster: Cluster) -> Iterator[int]:
    """Let a run happen; gives how much is delivered, each time that more is."""
    before = 0
    patience = Patience(cluster)
    while not cluster.over:
        cluster.step()
        patience.check()
        delivered = cluster.delivered
        if delivered != before:
            before = delivered
            yield delivered
            cluster.wake_fronts()  # iterators may be asked for more
        elif not cluster.policy.ordered:
            yield delivered
