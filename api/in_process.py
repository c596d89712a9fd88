"""Runs in the caller's process, with outputs to an iterator, a list, a sink or a consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import monotonic

from driftline.api.cluster import Cluster, Patience
from driftline.api.inputs import IteratorSource, LiveRecords
from driftline.api.outputs import ConsumerOpener, MergingConsumer, RunSummary
from driftline.connectors.live import LiveSource
from driftline.connectors.sinks import Consumer
from driftline.connectors.sinks.directory import identity_in
from driftline.connectors.sinks.lines import DEAD_LETTERS
from driftline.coordinator.identity import Identity
from driftline.deploy.local.inputs.bad_records import BadRecordFile
from driftline.deploy.roles.consumer import DeadLetters
from driftline.engine.durable import translate_os_errors
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.outline import make_outline
from driftline.engine.flow.plan import make_plan
from driftline.engine.labels import INFINITY
from driftline.engine.operators.steps import FAILURES
from driftline.engine.policy import Policy
from driftline.engine.sources import BadRecord, RetainedSource, Source
from driftline.engine.wire.bundles import Item

STORED_MESSAGE_S = 0.01
"""Average virtual time of a message, in seconds, if `write_to` stores the outputs. It is long, so
that a bundle contains many outputs and one write stores them."""


class InProcessRun:
    """A run of a flow in this process. Call exactly one of its public methods, once."""

    def __init__(
        self,
        flow: Flow,
        sources: Sequence[Source | RetainedSource | LiveSource],
        policy: Policy,
        nodes: int,
        snapshot_interval_s: float,
        dead_letters: bool,
    ) -> None:
        self._flow = flow
        self._live: list[LiveRecords] = []
        self._sources = list(map(self._wrap_live, sources))
        self._policy = policy
        self._nodes = nodes
        self._dead_letters = dead_letters
        self._bad_counts = [0] * len(sources)
        self._started_at = monotonic()
        self._new_cluster = partial(
            Cluster,
            flow,
            self._sources,
            policy=policy,
            nodes=nodes,
            snapshot_interval_s=snapshot_interval_s,
            dead_letters=dead_letters,
        )

    def items(self) -> Iterator[Item]:
        """Run during iteration, and yield each output as soon as it is final.

        Without label order, yield each output as soon as it is delivered.
        """
        consumer = MergingConsumer()
        return self._items(self._cluster(consumer), consumer)

    def append_to(self, items: list[Item]) -> RunSummary:
        """Run, and append the outputs to a list, dead letters included."""
        consumer = MergingConsumer()
        cluster = self._cluster(consumer)
        before, failed = len(items), 0
        for item in self._items(cluster, consumer):
            items.append(item)
            failed += item.sink == FAILURES
        return self._summary(cluster, len(items) - before - failed, failed)

    def write_to(self, output: str | Path | Consumer) -> RunSummary:
        """Run, and write the outputs to a directory, to the sink at an address, or to a consumer.

        Raises StateMismatch if the directory has outputs of another run.
        """
        identity = Identity(
            make_outline(self._flow),
            make_plan(self._flow).identity(),
            self._policy.name,
            self._nodes,
            tuple(source.identity() for source in self._sources),
        )
        opened = ConsumerOpener(output, self._flow, identity.to_json(), self._dead_letters)
        bad_record_files: list[BadRecordFile] = []
        if opened.directory is not None:
            _check_outputs(opened.directory, identity)
            bad_record_files = [
                BadRecordFile(opened.directory / DEAD_LETTERS / f"input-{i}.jsonl")
                for i in range(len(self._sources))
            ]
            for file in bad_record_files:
                file.forget(0)  # this run reads all input again
        loggers: list[DeadLetters | BadRecordFile] = [opened.letters, *bad_record_files]
        on_bad = (
            [file.add for file in bad_record_files] if bad_record_files else self._bad_counters()
        )
        cluster = self._new_cluster(
            consumer=opened.open,
            delay_s=STORED_MESSAGE_S,
            on_bad=on_bad if self._dead_letters else (),
        )
        self._connect(cluster)
        try:
            for _ in self._progress(cluster):
                for logger in loggers:
                    logger.log_if_due(monotonic())
        finally:
            self._close(cluster)
            for logger in loggers:
                logger.close()
        if bad_record_files:
            self._bad_counts = [file.count for file in bad_record_files]
        return self._summary(cluster, opened.outputs, opened.failures)

    def _cluster(self, consumer: MergingConsumer) -> Cluster:
        cluster = self._new_cluster(
            consumer=lambda barrier: consumer,
            on_bad=self._bad_counters() if self._dead_letters else (),
        )
        self._connect(cluster)
        return cluster

    def _connect(self, cluster: Cluster) -> None:
        """Give iterator sources access to the delivered frontier, if the policy is ordered."""
        if self._policy.ordered:
            for source in self._sources:
                if isinstance(source, IteratorSource):
                    source.delivered = lambda: cluster.delivered

    def _items(self, cluster: Cluster, consumer: MergingConsumer) -> Iterator[Item]:
        try:
            for delivered in self._progress(cluster):
                yield from consumer.take(delivered if self._policy.ordered else INFINITY + 1)
        finally:  # also if the caller stops iterating
            self._close(cluster)

    def _wrap_live(self, source: Source | RetainedSource | LiveSource) -> Source | RetainedSource:
        """Wrap a live source for fronts in this process; return others unchanged."""
        if not isinstance(source, LiveSource):
            return source
        records = LiveRecords(source)
        self._live.append(records)
        return IteratorSource(source.name, iter(records), "a live source read in one process")

    def _progress(self, cluster: Cluster) -> Iterator[int]:
        """Yield what `_run_to_end` yields, then acknowledge the records of live sources."""
        yield from _run_to_end(cluster)
        for records in self._live:
            records.acknowledge()

    def _close(self, cluster: Cluster) -> None:
        cluster.close()
        for records in self._live:
            records.close()
        for source in self._sources:
            if isinstance(source, IteratorSource):
                source.close()
                source.delivered = lambda: INFINITY  # `_connect` made it refer to the cluster

    def _bad_counters(self) -> list[Callable[[Sequence[BadRecord]], None]]:
        """Return for each front a function that counts its bad records."""
        return [partial(self._count_bad, front) for front in range(len(self._sources))]

    def _count_bad(self, front: int, records: Sequence[BadRecord]) -> None:
        self._bad_counts[front] += len(records)

    def _summary(self, cluster: Cluster, outputs: int, failed: int) -> RunSummary:
        seconds = monotonic() - self._started_at
        late = cluster.late_elements
        bad = sum(self._bad_counts)
        return RunSummary(
            cluster.records_read, outputs, failed, bad, late, seconds, processes=False
        )


def _check_outputs(path: Path, identity: Identity) -> None:
    """Raise StateMismatch, with the differences, if `path` has outputs of another run."""
    with translate_os_errors("output", path):
        before = Identity.from_json(identity_in(path))
    if before is not None and (differences := identity.differences(before)):
        lines = "".join(f"\n  {text}" for text in differences)
        raise StateMismatch(
            f"{path} holds the outputs of another run:{lines}\nContinue the run as it was, or "
            "give another directory, or remove this one"
        )


def _run_to_end(cluster: Cluster) -> Iterator[int]:
    """Run to the end, and yield the delivered frontier whenever it changes.

    Under an unordered policy, the frontier is 0 until the end, so yield it after each step. Raises
    Unavailable if the run makes no progress, and the error that ends it.
    """
    before = 0
    patience = Patience(cluster)
    while not cluster.is_over:
        cluster.step()
        patience.check()
        delivered = cluster.delivered
        if delivered != before:
            before = delivered
            yield delivered
            cluster.wake_fronts()  # a larger frontier lets fronts read more of an iterator
        elif not cluster.policy.ordered:
            yield delivered
