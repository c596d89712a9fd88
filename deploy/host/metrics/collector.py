"""The collector: makes metrics of samples, when it is scraped, in the thread of that connection."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from driftline.deploy.host.metrics.catalogue import CATALOGUE, FAMILIES
from driftline.deploy.host.metrics.samples import Samples, Value


class RunCollector(Collector):
    """The metrics of one process of a run."""

    def __init__(self, flow: str, *samples: Samples) -> None:
        """`flow`: its name; `samples`: each gives samples of now."""
        self._flow = flow
        self._samples = samples

    def describe(self) -> Iterator[Metric]:
        """The metrics without samples: for clients that ask for some by name (`name[]`)."""
        return (family.metric(self._flow, ()) for family in FAMILIES)

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        found: dict[str, list[tuple[tuple[str, ...], Value]]] = {}
        for samples in self._samples:
            for name, labels, value in samples():
                found.setdefault(name, []).append((labels, value))
        for name, values in found.items():
            yield CATALOGUE[name].metric(self._flow, values)


def registry_of(flow: str, *samples: Samples) -> CollectorRegistry:
    """A registry with these metrics, and those of the process: memory, processor time, files."""
    registry = CollectorRegistry()
    registry.register(RunCollector(flow, *samples))
    ProcessCollector(registry=registry)
    return registry
