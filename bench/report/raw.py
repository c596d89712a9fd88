"""Raw records of latency runs: one JSON line for each document, for other programs.

There is a file for each run, numbered in their order: `05-exactly-once-50ms.jsonl`. Times are exact
to a microsecond. The files are written after all runs, so writing is not measured.

    {"policy": "exactly-once", "checkpoint_ms": 50, "run": 5, "document": 700, "at_s": 14.07,
     "latency_ms": 2.13, "lost": 0, "duplicated": 0, "warmup": false}

`lost` and `duplicated` count records (words) of the document; a document with lost records, or
without words, has no latency.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from driftline.bench.measuring.meter import Meter
from driftline.bench.systems.cases import Case


def write_raw(directory: Path, runs: Sequence[tuple[Case | None, Meter]]) -> None:
    """Write all runs (case None: the floor). Precondition: the directory exists."""
    for number, (case, meter) in enumerate(runs, 1):
        with (directory / f"{number:02}-{_name(case)}.jsonl").open("w") as file:
            file.writelines(json.dumps(record) + "\n" for record in _records(number, case, meter))


def _name(case: Case | None) -> str:
    if case is None:
        return "floor"
    return case.policy if case.checkpoint_ms is None else f"{case.policy}-{case.checkpoint_ms}ms"


def _records(number: int, case: Case | None, meter: Meter) -> Iterator[dict[str, object]]:
    for sent in meter.documents():
        latency = sent.latency_ms
        yield {
            "policy": "floor" if case is None else case.policy,
            "checkpoint_ms": None if case is None else case.checkpoint_ms,
            "run": number,
            **sent._asdict(),
            "at_s": round(sent.at_s, 6),
            "latency_ms": None if latency is None else round(latency, 3),
        }
