"""Users of locust on a service: `locustfile.py`, without its page, in a process of its own.

The service is started for them, or runs somewhere already.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from math import nan
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from rich.table import Table

from driftline.bench.experiments.report import number
from driftline.bench.experiments.service import numbers
from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.served import fill
from driftline.bench.systems.service import ServedIndex
from driftline.engine.errors import Unavailable
from driftline.engine.ui.consoles import new_table, should_be_zero

SPAWNED_PER_S = 100
"""Users that begin in a second at most: with more, locust warns of problems."""

BEYOND_S = 120.0
"""How much longer than the load locust may take to begin and to end."""


@dataclass(frozen=True, slots=True)
class Requests:
    """One kind of requests, as locust counts them: from the beginning of a request."""

    name: str
    count: int
    failures: int
    ms: Mapping[float, int]
    """Response time, rounded -> how many had it."""

    def percentile(self, percent: float) -> float:
        """Return the smallest response time that so many percent do not exceed; NaN without any."""
        left = self.count * percent / 100
        for ms in sorted(self.ms):
            left -= self.ms[ms]
            if left <= 0:
                return ms
        return nan

    def as_json(self) -> dict[str, object]:
        """Return the figures as a JSON object."""
        return {
            "p50_ms": number(self.percentile(50)),
            "p99_ms": number(self.percentile(99)),
            "count": self.count,
            "failures": self.failures,
        }


@dataclass(slots=True)
class Usage:
    """What users have experienced; the other figures are of a service started for them."""

    users: int
    seconds: float
    requests: Sequence[Requests]
    fill_per_s: float = nan
    memory_mib: dict[str, float] = field(default_factory=dict)
    """Memory of each process at the end."""
    grown_mib: dict[str, float] = field(default_factory=dict)
    """The part of it that it did not have after the documents were put in."""

    def as_json(self) -> dict[str, object]:
        """Return the figures as a JSON object; `fresh` and `search ...` are among the requests."""
        return {
            "users": self.users,
            "seconds": self.seconds,
            "requests": {each.name: each.as_json() for each in self.requests},
            "errors": sum(each.failures for each in self.requests),
            "documents_per_s": number(self.fill_per_s),
            "memory_mib": numbers(self.memory_mib),
            "grown_mib": numbers(self.grown_mib),
        }

    def tables(self) -> list[Table]:
        """Return the figures for a terminal."""
        title = f"{self.users} users of locust, {self.seconds:g} s"
        table = new_table(title, ["what"], ["a second", "p50 ms", "p99 ms", "failures"])
        for each in self.requests:
            table.add_row(
                each.name,
                f"{each.count / self.seconds:.1f}",
                f"{each.percentile(50):.0f}",
                f"{each.percentile(99):.0f}",
                should_be_zero(each.failures),
            )
        table.caption = (
            "From the beginning of a request; fresh: put, and found, from when it was due; "
            "change: from the label of a document until it comes in the stream of changes."
        )
        if not self.memory_mib:
            return [table]
        memory = new_table("Memory, MiB", ["process"], ["at the end", "grown by"])
        for name, mib in self.memory_mib.items():
            memory.add_row(name, f"{mib:.0f}", f"{self.grown_mib[name]:+.0f}")
        return [table, memory]

    def problems(self) -> list[str]:
        """Return what must not be."""
        if not self.requests:
            return ["locust has done nothing: give more --seconds"]
        return [f"{each.name}: {each.failures} failures" for each in self.requests if each.failures]


def use(url: str, users: int, seconds: float) -> Usage:
    """Let users use a service that runs. Raises Unavailable."""
    try:
        with urlopen(f"{url}/count?q=*", timeout=BEYOND_S):  # an index with a collection
            pass
    except HTTPError as error:
        answer = error.read(300).decode(errors="replace")
        raise Unavailable(f"{url} cannot be used: {answer}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise Unavailable(f"{url} cannot be reached: {getattr(error, 'reason', error)}") from None
    command = [
        *(sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("locustfile.py"))),
        *("--headless", "--json", "--skip-log-setup", "--host", url),
        *("-u", str(users), "-r", str(min(users, SPAWNED_PER_S)), "-t", f"{seconds:g}s"),
    ]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, timeout=seconds + BEYOND_S, text=True
        )
        found = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise Unavailable(f"locust has not come to its end: {error}") from None
    return Usage(users, seconds, sorted(map(_requests, found), key=lambda each: each.name))


def serve_and_use(
    documents: Documents, nodes: int, searchers: int, users: int, seconds: float
) -> Usage:
    """Start a service, put documents in, and let users use it."""
    with ServedIndex(nodes, searchers) as service:
        per_s = fill(service.url, documents)
        before = service.memory_mib()
        usage = use(service.url, users, seconds)
        usage.fill_per_s = per_s
        usage.memory_mib = service.memory_mib()
        usage.grown_mib = {
            name: mib - before.get(name, 0.0) for name, mib in usage.memory_mib.items()
        }
    return usage


def _requests(statistics: Mapping[str, object]) -> Requests:
    match statistics:
        case {
            "name": str(name),
            "num_requests": int(count),
            "num_failures": int(failures),
            "response_times": dict(times),
        }:
            return Requests(name, count, failures, {float(ms): n for ms, n in times.items()})
    raise Unavailable("locust reports its figures in another form: is it another version?")
