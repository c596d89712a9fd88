"""Raw records of latency runs: one JSON line for each document, for other programs.

There is a file for each run, numbered in their order: `05-exactly-once-50ms.jsonl`, and with
durable ends `09-exactly-once-50ms-durable.jsonl`. Times are exact to a microsecond. The files are
written after all runs, so writing is not measured.

    {"policy": "exactly-once", "checkpoint_ms": 50, "durable": false, "transport": "ipc", "run": 5,
     "document": 700, "at_s": 14.07, "lateness_ms": 0.01, "latency_ms": 2.13, "lost": 0,
     "duplicated": 0, "warmup": false}

`at_s` is the time at which the document was due, `lateness_ms` how much later it was handed over;
`latency_ms` counts from the due time to the last output. `lost` and `duplicated` count outputs
(words) of the document; a document with lost outputs, or without words, has no latency.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from driftline.bench.measuring.meter import Meter
from driftline.bench.systems.cases import IPC, Case


def write_raw(directory: Path, runs: Sequence[tuple[Case, Meter]]) -> None:
    """Write all runs. Precondition: the directory exists."""
    for number, (case, meter) in enumerate(runs, 1):
        with (directory / f"{number:02}-{_name(case)}.jsonl").open("w") as file:
            file.writelines(json.dumps(record) + "\n" for record in _records(number, case, meter))


def _name(case: Case) -> str:
    every = "" if case.checkpoint_ms is None else f"-{case.checkpoint_ms}ms"
    over = "" if case.transport == IPC else f"-{case.transport}"
    return case.policy + every + over + ("-durable" if case.durable else "")


def _records(number: int, case: Case, meter: Meter) -> Iterator[dict[str, object]]:
    for sent in meter.documents():
        latency = sent.latency_ms
        yield {
            "policy": case.policy,
            "checkpoint_ms": case.checkpoint_ms,
            "durable": case.durable,
            "transport": case.transport,
            "run": number,
            **sent._asdict(),
            "at_s": round(sent.at_s, 6),
            "lateness_ms": round(sent.lateness_ms, 3),
            "latency_ms": None if latency is None else round(latency, 3),
        }
