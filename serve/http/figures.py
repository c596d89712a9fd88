"""The figures of a service's parts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from driftline.serve.gateway.backend import Backend

FIGURES = {
    "records": "Records that were ever taken.",
    "waiting": "Of the flow: records that are not durable, or not read yet. "
    "Of a view: questions that are not answered yet.",
    "settled": "The label time below which all records are worked off.",
    "producers": "Producers that have ever sent records; the gateway is one of them.",
    "nodes": "Nodes of the flow.",
    "outputs": "Outputs that have come to the gateway since its start.",
    "delay_p50_s": "From a record's label time to its output at the gateway: the median, lately.",
    "delay_p99_s": "From a record's label time to its output at the gateway: 99 of 100, lately.",
    "answer_p50_s": "Answers of views that need not wait for a T: the median, lately.",
    "answer_p99_s": "Answers of views that need not wait for a T: 99 of 100, lately.",
    "time": "T: all outputs below this label time are here.",
    "since": "The least T as of which the view still answers.",
    "dead_letters": "Dead letters since the start of the service.",
    "checkpoint": "The T of the view's last checkpoint.",
    "answered": "Questions that the view has answered since its start.",
    "applied": "Outputs that the view has applied since its start.",
    "apply_s": "Seconds that these took.",
    "ask_s": "Seconds that the answers took.",
    "keys": "Keys of a key-value view.",
    "without_key": "Outputs of a key-value view that have no key.",
}
"""What the figures are, those of all views among them."""


class Figures(Collector):
    """The figures of a backend, as they are when they are asked for.

    `more`: what those of its views are that are not in `FIGURES`.
    """

    def __init__(self, backend: Backend, more: Mapping[str, str]) -> None:
        self._backend = backend
        self._texts = {**FIGURES, **more}

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        for part, figures in self._backend.figures().items():
            for name, value in figures.items():
                if name not in families:
                    text = self._texts.get(name, f"The figure {name!r} of a view.")
                    families[name] = GaugeMetricFamily(metric_of(name), text, labels=["part"])
                families[name].add_metric([part], value)
        return iter(families.values())


def metric_of(figure: str) -> str:
    """The name of a figure at Prometheus."""
    return f"driftline_service_{''.join(c if c.isalnum() and c.isascii() else '_' for c in figure)}"
