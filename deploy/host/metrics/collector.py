"""The collector: makes metrics of samples, when it is scraped, in the thread of that connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from driftline.deploy.host.metrics.catalogue import CATALOGUE, FAMILIES
from driftline.deploy.host.metrics.samples import Sample, Samples, Value

Tagged = Callable[[], Iterable[tuple[str, Sample]]]
"""Gives samples of now, each with the name of its flow."""


def of_flow(flow: str, *samples: Samples) -> Tagged:
    """Samples that are all of one flow."""
    return lambda: ((flow, sample) for each in samples for sample in each())


class ProcessMetrics(Collector):
    """The metrics of one process."""

    def __init__(self, given: Tagged) -> None:
        self._given = given

    def describe(self) -> Iterator[Metric]:
        """The metrics without samples: for clients that ask for some by name (`name[]`)."""
        return (family.metric() for family in FAMILIES)

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        found: dict[str, list[tuple[tuple[str, ...], Value]]] = {}
        for flow, (name, labels, value) in self._given():
            found.setdefault(name, []).append(((flow, *labels), value))
        for name, values in found.items():
            yield CATALOGUE[name].metric(values)


def registry_of(given: Tagged) -> CollectorRegistry:
    """A registry with these metrics, and those of the process: memory, processor time, files."""
    registry = CollectorRegistry()
    registry.register(ProcessMetrics(given))
    ProcessCollector(registry=registry)
    return registry
