"""Names of metrics: conventions, documentation, and what processes export."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from driftline.deploy.runtime.metrics.catalogue import (
    CATALOGUE,
    FAMILIES,
    Family,
    ProcessMetrics,
    tag_with_flow,
)
from driftline.engine.meters import Histogram, Sample

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "metrics.md"


def sample(family: Family) -> Sample:
    histogram = Histogram()
    histogram.add(0.2, 3)
    return family.name, tuple(family.labels), histogram if family.kind == "histogram" else 7.0


@pytest.fixture
def registry() -> CollectorRegistry:
    """Return every metric once."""
    registry = CollectorRegistry()
    registry.register(ProcessMetrics(tag_with_flow('a "flow"\n', lambda: map(sample, FAMILIES))))
    return registry


def test_prometheus_reads_every_metric_with_its_name_kind_and_labels(
    registry: CollectorRegistry,
) -> None:
    """Both formats; the buckets of a histogram are cumulative, and the last one has its count."""
    plain = list(text_string_to_metric_families(generate_latest(registry).decode()))
    encode, _ = choose_encoder("application/openmetrics-text; version=1.0.0")
    strict = list(openmetrics(encode(registry).decode()))  # type: ignore[no-untyped-call]
    for families in (plain, strict):
        found = [(f.name + "_total" * (f.type == "counter"), f.type) for f in families]
        assert found == [(f.name, f.kind) for f in FAMILIES]
        for family, ours in zip(families, FAMILIES, strict=True):
            le = {"le"} if ours.kind == "histogram" else set()
            assert family.samples[0].labels.keys() == {"flow", *ours.labels, *le}
        for family in families:
            assert family.samples[0].labels["flow"] == 'a "flow"\n'
            if family.type == "histogram":
                counts = [s.value for s in family.samples if s.name.endswith("_bucket")]
                assert counts == sorted(counts)
                assert counts[-1] == 3


def test_page_documents_exactly_the_metrics_with_kind_and_labels() -> None:
    # Metrics of a service have their own test: its views may define any.
    page = re.sub(r"\n### Of a service\n.*?\n###", "\n###", PAGE.read_text(), flags=re.DOTALL)
    rows = re.findall(r"^\| `(driftline_\w+)` \| (\w+) \| ([^|]*) \|", page, re.MULTILINE)
    documented = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows
    }
    assert documented == {f.name: (f.kind, f.labels) for f in FAMILIES}
    assert len(rows) == len(CATALOGUE)
    named = set(re.findall(r"\bdriftline_\w+", page))
    known = {*CATALOGUE, *(f"{f.name}_bucket" for f in FAMILIES if f.kind == "histogram")}
    assert named <= known
