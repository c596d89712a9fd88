"""Load, loops and meter: what is measured, and from which moment on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from time import sleep

import pytest

from driftline.bench.measuring.corpus import load_documents
from driftline.bench.measuring.load import (
    Load,
    LoadParameters,
    unique_word,
)
from driftline.bench.measuring.loops import closed_loop, open_loop, poisson_schedule
from driftline.bench.measuring.meter import Arrival, RunMeter, SentDocument, percentiles
from driftline.engine.errors import InputError
from driftline.engine.sources.record import RecordFormat
from tests.bench.echo import EchoSystem

PAGES = RecordFormat()


@pytest.fixture
def articles(tmp_path: Path) -> Path:
    path = tmp_path / "articles.jsonl"
    lines = [
        json.dumps({"id": "a", "title": "Tides", "text": "High and low."}),
        "{ broken",
        json.dumps({"id": "b", "title": "", "text": "No title."}),
    ]
    path.write_text("\n".join(lines))
    return path


def test_documents_join_title_and_text_and_skip_bad_lines(articles: Path) -> None:
    assert load_documents(2, articles, PAGES) == [
        ("a", "Tides\nHigh and low."),
        ("b", "No title."),
    ]


def test_texts_repeat_with_new_ids_if_the_corpus_is_too_small(articles: Path) -> None:
    documents = load_documents(5, articles, PAGES)
    assert [document for document, _ in documents] == ["a", "b", "a~2", "b~2", "a~3"]
    assert documents[4][1] == documents[0][1]


def test_a_file_without_documents_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    with pytest.raises(InputError, match=r"empty\.jsonl"):
        load_documents(1, path)


WANTED = LoadParameters(documents=60, documents_per_s=50, queries_per_s=80, seconds=2.0, seed=3)


def test_load_is_deterministic_and_has_the_requested_rates() -> None:
    documents = load_documents(WANTED.documents_needed)
    load = WANTED.load(documents)
    assert load == WANTED.load(documents)
    assert list(load.documents) == list(documents[:60])
    assert [each.id for each in load.document_arrivals] == [id for id, _ in documents[60:]]
    seconds = WANTED.warmup_s + WANTED.seconds
    for due, rate in (
        ([each.due_s for each in load.document_arrivals], WANTED.documents_per_s),
        ([each.due_s for each in load.query_arrivals], WANTED.queries_per_s),
    ):
        assert due == sorted(due)
        assert 0.6 < len(due) / (rate * seconds) < 1.4
        assert seconds * 0.8 < due[-1] < seconds


def test_load_round_trips_through_a_directory(tmp_path: Path) -> None:
    load = WANTED.load(load_documents(WANTED.documents_needed))
    load.write(tmp_path / "load")
    assert Load.read(tmp_path / "load") == load


def test_each_arriving_document_has_a_unique_word() -> None:
    load = WANTED.load(load_documents(WANTED.documents_needed))
    texts = [text for _, text in load.documents] + [each.text for each in load.document_arrivals]
    for each in load.document_arrivals:
        assert sum(each.word in text for text in texts) == 1
    assert len({unique_word(number) for number in range(30_000)}) == 30_000


def test_open_loop_keeps_its_schedule_if_the_system_is_slow() -> None:
    system = EchoSystem([["a"]] * 20, delay_s=0.05)
    result = open_loop(system, RunMeter([1] * 20), [i / 1000 for i in range(20)], settle_s=0.0)
    assert system.sent == list(range(20))
    assert system.in_flight_max > 10, "a closed loop would have waited"
    assert result["latencies"] == 20
    assert result["p50_ms"] >= 50
    assert result["send_delay_p99_ms"] < 45, "shorter than the system takes to answer"
    assert (result["lost"], result["duplicated"]) == (0, 0)


class StallingSystem(EchoSystem):
    """System that blocks its producer for half a second, after three documents."""

    stalled = False

    def receive(self) -> list[Arrival]:
        if len(self.sent) == 3 and not self.stalled:
            self.stalled = True
            sleep(0.5)
        return super().receive()


def test_latency_includes_the_wait_while_the_producer_stalled() -> None:
    system = StallingSystem([["a"]] * 23)
    result = open_loop(system, RunMeter([1] * 23), [i / 100 for i in range(23)], settle_s=0.0)
    assert result["latencies"] == 23
    assert result["max_ms"] >= 450
    assert result["p50_ms"] >= 300, "most documents were due during the stall"
    assert result["send_delay_max_ms"] >= 450


def test_closed_loop_keeps_its_window() -> None:
    system = EchoSystem([["a", "b"]] * 50, delay_s=0.001)
    result = closed_loop(system, RunMeter([2] * 50), window=7, settle_s=0.0)
    assert system.in_flight_max == 7
    assert 0 < result["documents_per_s"] <= 7 / 0.001
    assert result["outputs_per_s"] == pytest.approx(2 * result["documents_per_s"])
    assert (result["lost"], result["duplicated"]) == (0, 0)


def test_closed_loop_times_out_on_missing_outputs() -> None:
    system = EchoSystem([["a"], [], ["a"]])
    result = closed_loop(system, RunMeter([1] * 3), window=3, patience_s=0.05, settle_s=0.0)
    assert (result["lost"], result["duplicated"]) == (1, 0)


def test_schedule_follows_from_seed_and_rate() -> None:
    schedule = poisson_schedule(4000, rate=50, seed=3)
    assert schedule == poisson_schedule(4000, rate=50, seed=3) == sorted(schedule)
    assert schedule != poisson_schedule(4000, rate=50, seed=4)
    assert schedule[-1] == pytest.approx(80, rel=0.1)


def sent(meter: RunMeter) -> RunMeter:
    for number in range(len(meter.expected)):
        meter.record_sent(number, now=float(number), due=number - 0.25)
    return meter


def test_latency_runs_from_the_due_time_to_the_last_output() -> None:
    meter = sent(RunMeter([2, 1]))
    meter.record_arrival(0, ["a"], 0.5)
    meter.record_arrival(1, ["a"], 1.125)
    meter.record_arrival(0, ["b"], 2.0)
    assert meter.latencies_ms() == [2250.0, 375.0]
    assert meter.send_delay_ms() == [250.0, 250.0]
    assert (meter.complete, meter.lost, meter.duplicated) == (2, 0, 0)
    meter.validate()


def test_meter_reports_latency_loss_and_duplicates_per_document() -> None:
    meter = sent(RunMeter([2, 2, 0], warmup=1))
    meter.record_arrival(0, ["a", "b"], 0.5)
    meter.record_arrival(0, ["a"], 0.75)
    meter.record_arrival(1, ["a"], 1.5)
    assert list(meter.documents()) == [
        SentDocument(0, 0.0, 250.0, 750.0, lost=0, duplicated=1, warmup=True),
        SentDocument(1, 1.0, 250.0, None, lost=1, duplicated=0, warmup=False),
        SentDocument(2, 2.0, 250.0, None, lost=0, duplicated=0, warmup=False),
    ]


@pytest.mark.parametrize(
    "batches",
    [[["a", "b"], ["a"]], [["a"], ["a"], ["b"]], [["a", "a", "b"]], [["b"], ["a", "b"]]],
)
def test_duplicate_output_is_counted_before_and_after_completion(
    batches: list[list[str]],
) -> None:
    meter = sent(RunMeter([2]))
    for batch in batches:
        meter.record_arrival(0, batch, 1.0)
    assert (meter.outputs, meter.lost, meter.duplicated) == (2, 0, 1)
    meter.validate()


def test_duplicate_does_not_replace_a_lost_output() -> None:
    meter = sent(RunMeter([2]))
    meter.record_arrival(0, ["a"], 1.0)
    meter.record_arrival(0, ["a"], 1.0)
    assert (meter.complete, meter.lost, meter.duplicated) == (0, 1, 1)


def test_percentiles_are_observed_values() -> None:
    assert percentiles([float(i) for i in range(100, 0, -1)]) == {
        "p50_ms": 50.0,
        "p75_ms": 75.0,
        "p95_ms": 95.0,
        "p99_ms": 99.0,
        "max_ms": 100.0,
    }
    assert set(percentiles([7.0]).values()) == {7.0}
    assert all(math.isnan(value) for value in percentiles([]).values())
