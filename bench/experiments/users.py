"""Users of locust on a service: `bench.load.locustfile`, without its page, in a process of its own.

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

import driftline.bench.load
from driftline.bench.experiments.service import summed
from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.load import Observed
from driftline.bench.measuring.served import fill
from driftline.bench.report.services import bytes_per_posting
from driftline.bench.report.spread import number
from driftline.bench.systems.service import ServedIndex
from driftline.engine.errors import Unavailable
from driftline.engine.ui.consoles import new_table, should_be_zero

SPAWNED_PER_S = 100
"""Users that begin in a second at most; with more, locust says, it has problems."""

BEYOND_S = 120.0
"""How much longer than the load locust may take to begin and to end."""


@dataclass(frozen=True, slots=True)
class Done:
    """One kind of what users do, as locust counts it: from the beginning of a request."""

    name: str
    count: int
    failures: int
    ms: Mapping[float, int]
    """Response time, rounded -> how many had it."""

    def percentile(self, percent: float) -> float:
        """The smallest response time that so many percent do not exceed; NaN without any."""
        left = self.count * percent / 100
        for ms in sorted(self.ms):
            left -= self.ms[ms]
            if left <= 0:
                return ms
        return nan

    def as_json(self) -> dict[str, object]:
        """The figures as a JSON object."""
        return {
            "p50_ms": number(self.percentile(50)),
            "p99_ms": number(self.percentile(99)),
            "count": self.count,
            "failures": self.failures,
        }


@dataclass(slots=True)
class Used:
    """What users have met with; `service`: of a service that was started for them."""

    users: int
    seconds: float
    done: Sequence[Done] = ()
    service: Observed = field(default_factory=Observed)
    grown_mib: dict[str, float] = field(default_factory=dict)
    """Memory of each process, beyond what it had after the documents were put in."""

    def as_json(self) -> dict[str, object]:
        """The figures as a JSON object, of the same form as without users."""
        named = {each.name: each.as_json() for each in self.done}
        return {
            "freshness": named.get("fresh", {}),
            "queries": {
                name.removeprefix("search "): figures
                for name, figures in named.items()
                if name.startswith("search ")
            },
            "documents_per_s": number(self.service.fill_per_s),
            "errors": sum(each.failures for each in self.done),
            "bytes_per_posting": bytes_per_posting(self.service.figures),
            "peers": {},
            "users": self.users,
            "seconds": self.seconds,
            "done": named,
            "memory_mib": {name: number(mib) for name, mib in self.service.memory_mib.items()},
            "grown_mib": {name: number(mib) for name, mib in self.grown_mib.items()},
        }

    def tables(self) -> list[Table]:
        """For a terminal."""
        title = f"{self.users} users of locust, {self.seconds:g} s"
        table = new_table(title, ["what"], ["a second", "p50 ms", "p99 ms", "failures"])
        for each in self.done:
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
        if not self.service.memory_mib:
            return [table]
        memory = new_table("Memory, MiB", ["process"], ["at the end", "grown by"])
        for name, mib in self.service.memory_mib.items():
            memory.add_row(name, f"{mib:.0f}", f"{self.grown_mib[name]:+.0f}")
        return [table, memory]

    def problems(self) -> list[str]:
        """What must not be."""
        failed = [f"{each.name}: {each.failures} failures" for each in self.done if each.failures]
        return failed if self.done else ["locust has done nothing: give more --seconds"]


def use(url: str, users: int, seconds: float, record: Path | None) -> Used:
    """Let users use a service that runs. Raises Unavailable."""
    _check_there(url)
    file = Path(driftline.bench.load.__path__[0]) / "locustfile.py"
    command = [sys.executable, "-m", "locust", "-f", str(file), "--headless", "--json"]
    command += [
        "-u",
        str(users),
        "-r",
        str(min(users, SPAWNED_PER_S)),
        "-t",
        f"{seconds:g}s",
        "--host",
        url,
    ]
    command += ["--skip-log-setup", "--record", str(record.resolve()) if record else ""]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, timeout=seconds + BEYOND_S, text=True
        )
        found = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise Unavailable(f"locust has not come to its end: {error}") from None
    return Used(users, seconds, sorted(map(_done, found), key=lambda each: each.name))


def _check_there(url: str) -> None:
    """Raises Unavailable unless there is an index with a collection that can be asked."""
    try:
        with urlopen(f"{url}/count?q=*", timeout=BEYOND_S):
            pass
    except HTTPError as error:
        told = error.read(300).decode(errors="replace")
        raise Unavailable(f"{url} cannot be used: {told}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise Unavailable(f"{url} cannot be reached: {getattr(error, 'reason', error)}") from None


def serve_and_use(
    documents: Documents,
    nodes: int,
    searchers: int,
    users: int,
    seconds: float,
    record: Path | None,
) -> Used:
    """Start a service, put documents in, and let users use it."""
    with ServedIndex(nodes, searchers) as service:
        per_s = fill(service.url, documents)
        before = service.memory_mib()
        used = use(service.url, users, seconds, record)
        memory = service.memory_mib()
        used.service = Observed(
            fill_per_s=per_s, memory_mib=memory, figures=summed(service.figures())
        )
        used.grown_mib = {name: mib - before.get(name, 0.0) for name, mib in memory.items()}
    return used


def _done(told: Mapping[str, object]) -> Done:
    match told:
        case {
            "name": str(name),
            "num_requests": int(count),
            "num_failures": int(failures),
            "response_times": dict(times),
        }:
            return Done(name, count, failures, {float(ms): n for ms, n in times.items()})
    raise Unavailable("locust tells its figures in another form: is it another version?")
