"""Locust users on a service: runs `locustfile.py` headless, in its own process.

`serve_and_run_users` starts a service for the users; `run_users` uses a running service.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from math import nan
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from msgspec import Struct, field
from msgspec.structs import replace
from rich.table import Table

from driftline.bench.experiments.report import (
    Column,
    ExperimentReport,
    FigureColumn,
    KeyColumn,
    Row,
    to_json_number,
)
from driftline.bench.experiments.service import to_json_numbers
from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.served import fill
from driftline.bench.systems.service import ServedIndex
from driftline.engine.errors import Unavailable
from driftline.engine.ui.consoles import new_table

SPAWNED_PER_S_MAX = 100
"""Maximum number of users started per second; above it, locust logs a warning."""

EXTRA_TIMEOUT_S = 120.0
"""Seconds that locust may take in addition to the load, to start and stop. Also the timeout of the
check that the service answers."""

KEYS = (KeyColumn("request", "what"),)
FIGURES = (
    FigureColumn("per_s", "a second", "{:.1f}".format),
    FigureColumn("p50_ms", "p50 ms", "{:.0f}".format),
    FigureColumn("p99_ms", "p99 ms", "{:.0f}".format),
    FigureColumn("count"),
    FigureColumn("failures", "failures", "{:.0f}".format),
)
NOTE = (
    "Times count from the start of a request. fresh: from the due time of a put until a query has "
    "found the document; change: from the label's time until the change stream delivers the change."
)


class Requests(Struct, frozen=True):
    """Case of a row: one kind of requests, by locust's name."""

    request: str


class Usage(ExperimentReport[Requests], frozen=True, kw_only=True):
    """Figures of the users' requests, and the memory of a service that was started for them."""

    keys: Sequence[Column] = KEYS
    notes: Sequence[str] = (NOTE,)
    problem_ending: str = ""
    memory_mib: Mapping[str, float] = field(default_factory=dict)
    """Memory of each process at the end, in MiB."""
    grown_mib: Mapping[str, float] = field(default_factory=dict)
    """Growth of each process since the documents were inserted, in MiB."""

    def as_json(self) -> dict[str, object]:
        """Return the figures as a JSON object."""
        memory = {
            "memory_mib": to_json_numbers(self.memory_mib),
            "grown_mib": to_json_numbers(self.grown_mib),
        }
        return {**super().as_json(), **memory}

    def tables(self) -> list[Table]:
        """Return the figures for a terminal."""
        tables = super().tables()
        if self.memory_mib:
            tables.append(new_table("Memory, MiB", ["process"], ["at the end", "grown by"]))
        for name, mib in self.memory_mib.items():
            tables[-1].add_row(name, f"{mib:.0f}", f"{self.grown_mib[name]:+.0f}")
        return tables

    def problems(self) -> list[str]:
        """Return a sentence for each kind of failed requests, or if there were no requests."""
        if not self.rows:
            return ["locust finished no request: give more --seconds"]
        failures = {row.case.request: row.total("failures") for row in self.rows}
        return [f"{name}: {count} failures" for name, count in failures.items() if count]


def run_users(url: str, users: int, seconds: float) -> Usage:
    """Run locust users on a running service.

    Raises Unavailable if the service does not answer a query, or if locust fails or does not end.
    """
    try:
        with urlopen(f"{url}/count?q=*", timeout=EXTRA_TIMEOUT_S):  # fails without a collection
            pass
    except HTTPError as error:
        answer = error.read(300).decode(errors="replace")
        raise Unavailable(f"{url} is not a usable index: {answer}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise Unavailable(f"{url} cannot be reached: {getattr(error, 'reason', error)}") from None
    command = [
        *(sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("locustfile.py"))),
        *("--headless", "--json", "--skip-log-setup", "--host", url),
        *("-u", str(users), "-r", str(min(users, SPAWNED_PER_S_MAX)), "-t", f"{seconds:g}s"),
    ]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, timeout=seconds + EXTRA_TIMEOUT_S, text=True
        )
        statistics = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise Unavailable(f"locust failed, or did not end in time: {error}") from None
    rows = [_row(each, seconds) for each in statistics]
    return Usage(
        settings={"users": users, "seconds": seconds},
        columns_by_title={f"{users} users of locust, {seconds:g} s": FIGURES},
        rows=sorted(rows, key=lambda row: row.case.request),
    )


def serve_and_run_users(
    documents: Documents, nodes: int, searchers: int, users: int, seconds: float
) -> Usage:
    """Start a service, insert documents, and run locust users on it."""
    with ServedIndex(nodes, searchers) as service:
        per_s = fill(service.url, documents)
        initial_mib = service.memory_mib()
        usage = run_users(service.url, users, seconds)
        memory_mib = service.memory_mib()
    return replace(
        usage,
        settings={**usage.settings, "documents_per_s": to_json_number(per_s)},
        memory_mib=memory_mib,
        grown_mib={name: mib - initial_mib.get(name, 0.0) for name, mib in memory_mib.items()},
    )


def _row(statistics: Mapping[str, object], seconds: float) -> Row[Requests]:
    """Return the row of one kind of requests from locust's statistics."""
    match statistics:
        case {
            "name": str(name),
            "num_requests": int(count),
            "num_failures": int(failures),
            "response_times": dict(times),
        }:
            run = {
                "per_s": count / seconds,
                "p50_ms": _percentile(times, count, 50),
                "p99_ms": _percentile(times, count, 99),
                "count": count,
                "failures": failures,
            }
            return Row(Requests(name), [run])
    raise Unavailable(
        "locust reports its figures in an unknown form; install the version of driftline[bench]"
    )


def _percentile(times: Mapping[str, int], count: int, percent: float) -> float:
    """Return the least response time in ms that `percent` of the requests do not exceed.

    `times`: rounded response time -> number of requests. Returns NaN if there are no requests.
    """
    remaining = count * percent / 100
    for ms, requests in sorted((float(ms), requests) for ms, requests in times.items()):
        remaining -= requests
        if remaining <= 0:
            return ms
    return nan
