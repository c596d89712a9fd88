"""Stored queries: how many documents a second a `driftline serve` takes beside many watches.

Watches are put over ZeroMQ, then documents by one bulk over HTTP. What counts ends when the event
of the last document has come on the stream of a watch of its own: all events of those before it
are readable by then. The same is measured with that one watch alone.
"""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter, sleep
from urllib.parse import quote, urlsplit

from rich.console import Console
from rich.table import Table
from rich.text import Text

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.served import FILLS_WITHIN_S, put_in
from driftline.bench.measuring.stored import PROBE, PROBED, SCHEMA, Document, Stored, as_documents
from driftline.bench.report.spread import number, three_digits
from driftline.bench.systems.service import ServedIndex
from driftline.engine.errors import Unavailable
from driftline.engine.ui.consoles import new_table
from driftline.index.client.producing import IndexProducer

TOLD_WITHIN_S = 30.0
"""Shards tell their figures now and then; they are asked again after `AGAIN_S`."""
AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class Streamed:
    """Documents that came beside so many watches."""

    watches: int
    put_per_s: float
    """Watches, until the last one is there."""
    documents: int
    seconds: float
    events: int
    always_looked_at: int
    before_mib: float
    """Memory of all searchers, once the watches are there; `memory_mib`: of each process, after."""
    memory_mib: Mapping[str, float]
    cores: Mapping[str, float]

    @property
    def per_s(self) -> float:
        """Documents a second."""
        return self.documents / self.seconds

    @property
    def searchers_mib(self) -> float:
        """Memory of all searchers, after the documents."""
        return _of_searchers(self.memory_mib)

    def as_json(self) -> dict[str, object]:
        """The figures as a JSON object."""
        return {
            **asdict(self),
            "documents_per_s": number(self.per_s),
            "events_per_document": number(self.events / self.documents),
        }


@dataclass(frozen=True, slots=True)
class Watching:
    """Documents without watches, and with them."""

    nodes: int
    searchers: int
    without: Streamed
    beside: Streamed

    def as_json(self) -> dict[str, object]:
        """The figures as a JSON object."""
        return {
            "nodes": self.nodes,
            "searchers": self.searchers,
            "without": self.without.as_json(),
            "with": self.beside.as_json(),
        }

    def table(self) -> Table:
        """For a terminal."""
        table = new_table(
            f"{self.beside.documents:,} documents beside stored queries",
            ["watches"],
            ["documents/s", "events a document", "watches put/s", "searchers, MiB", "after, MiB",
             "searchers, cores", "all, cores"],
        )  # fmt: skip
        for each in (self.without, self.beside):
            table.add_row(
                f"{each.watches:,}",
                f"{each.per_s:,.0f}",
                f"{each.events / each.documents:,.1f}",
                f"{each.put_per_s:,.0f}" if each.watches > 1 else "",
                f"{each.before_mib:.0f}",
                f"{each.searchers_mib:.0f}",
                three_digits(_of_searchers(each.cores)),
                three_digits(sum(each.cores.values())),
            )
        table.caption = Text(
            "Until the event of the last document has come. "
            f"{self.beside.always_looked_at} watches are ranges, and looked at for every document."
        )
        return table


def measure_watches(
    documents: Documents, watches: int, nodes: int, searchers: int, seed: int, console: Console
) -> Watching:
    """Documents beside one watch, then beside so many."""
    queries, put = Stored(documents, seed).draw(watches), as_documents(documents)
    without = stream(put, [], nodes, searchers, console)
    beside = stream(put, queries, nodes, searchers, console)
    return Watching(nodes, searchers, without, beside)


def stream(
    documents: Sequence[Document],
    queries: Sequence[str],
    nodes: int,
    searchers: int,
    console: Console,
) -> Streamed:
    """Put the watches, and one for the last document; then the documents."""
    with TemporaryDirectory(prefix="driftline-bench-") as home:
        schema, address = Path(home) / "schema.toml", f"ipc://{home}/producers"
        schema.write_text(SCHEMA)
        options = ["--schema", str(schema), "--zmq", address]
        with ServedIndex(nodes, searchers, options) as service:
            put_per_s, label = _put(service.url, address, queries)
            console.print(f"{len(queries) + 1:,} watches, {put_per_s:,.0f} a second",
                          highlight=False)  # fmt: skip
            before, mib = service.cpu_s(), _of_searchers(service.memory_mib())
            began = perf_counter()
            put_in(service.url, documents)
            _await_event(service.url, label)
            seconds = perf_counter() - began
            after, told = service.cpu_s(), _figures(service, len(documents))
            return Streamed(
                watches=len(queries) + 1,
                put_per_s=put_per_s,
                documents=len(documents),
                seconds=seconds,
                events=round(told["watch_events"]),
                always_looked_at=round(told["watches_always_looked_at"] / searchers),
                before_mib=mib,
                memory_mib=service.memory_mib(),
                cores={name: (s - before.get(name, 0.0)) / seconds for name, s in after.items()},
            )


def _figures(service: ServedIndex, documents: int) -> Counter[str]:
    """The sums over all shards, once they tell of so many documents. Raises Unavailable."""
    until = monotonic() + TOLD_WITHIN_S
    while monotonic() < until:
        summed: Counter[str] = Counter()
        for part in service.figures().values():
            summed.update(part)
        if summed["documents"] >= documents:
            return summed
        sleep(AGAIN_S)
    raise Unavailable(f"{documents} documents were put in, and the shards tell of others: {summed}")


def _put(url: str, address: str, queries: Sequence[str]) -> tuple[float, str]:
    """Put the watches. Returns how many a second, and a label after which they are there."""
    began = perf_counter()
    with IndexProducer(address, "watches") as index:
        for name, query in enumerate(queries):
            index.put_watch(f"w{name}", query)
        index.put_watch(PROBE, PROBED)
        index.flush()
        label = index.label
    with _opened(url, f"/watches/{PROBE}?after={quote(label)}") as answer:
        answer.read()
    return (len(queries) + 1) / (perf_counter() - began), label


def _await_event(url: str, label: str) -> None:
    """Wait until the event of the last document comes. Raises Unavailable if it does not."""
    with _opened(url, f"/watches/{PROBE}/events?from={quote(label)}") as answer:
        for line in answer:
            if line.startswith(b"data:"):
                if json.loads(line[5:]).get("event") != "begins":
                    raise Unavailable(f"the watch of the last document has got {line.decode()}")
                return
    raise Unavailable("the stream of a watch has ended before the event of the last document")


@contextmanager
def _opened(url: str, path: str) -> Iterator[http.client.HTTPResponse]:
    """The answer to a GET. Raises Unavailable."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=FILLS_WITHIN_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise Unavailable(f"GET {path} is answered by {answer.read().decode()}")
        yield answer
    except OSError as error:
        raise Unavailable(f"GET {path} is not answered: {error}") from None
    finally:
        connection.close()


def _of_searchers(figures: Mapping[str, float]) -> float:
    """The sum over the searchers of a figure of processes."""
    return sum(figure for name, figure in figures.items() if name.startswith("documents"))
