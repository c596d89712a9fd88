"""Memory: the memory of the nodes after many documents, and its growth while the state is constant.

There are two runs under exactly-once. In the first the inverted index grows with every document. In
the second the flow counts words of a fixed vocabulary: after the beginning its state does not grow,
so any growth is a leak.
"""

import operator
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from random import Random
from statistics import median
from time import monotonic

import psutil
from rich.table import Table

from driftline.bench.measuring.corpus import Documents, expected_outputs
from driftline.bench.measuring.loops import closed_loop
from driftline.bench.measuring.meter import Meter
from driftline.bench.systems.consumers import PassingConsumer
from driftline.bench.systems.engine import Engine
from driftline.deploy.parties.window import WINDOW
from driftline.engine.flow.flow import Flow
from driftline.engine.state.managed import ReducingState
from driftline.engine.ui.consoles import new_table
from driftline.engine.wire.bundles import from_blob
from driftline.engine.wire.messages import Bundle

VOCABULARY = 10_000
WORDS = 60
"""Words of a record."""

SAMPLE_EVERY_S = 1.0

FIRST_SHARE = 0.2
"""The share of the time that counts as the beginning: the first minute of five."""

MIB = 2**20


def _count(word: str, total: ReducingState[int]) -> tuple[str, int]:
    return word, total.add(1)


def _words(record: dict[str, str]) -> list[str]:
    return record["text"].split()


flow = Flow("word count over a fixed vocabulary")
(
    flow.source("records")
    .flat_map(_words, name="words")
    .key_by(lambda word: word)
    .scan(_count, ReducingState("total", operator.add), name="count")
    .sink("counts")
)


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of the nodes, in MiB."""

    documents: int
    index_mib: float
    """Of the largest node, with all documents indexed."""
    seconds: float
    records: int
    early_mib: float
    """Of all nodes, the median over the second half of the first fifth of the word count."""
    late_mib: float
    """The same, over the last tenth of the time."""

    @property
    def growth(self) -> float:
        """Growth from `early_mib` to `late_mib`, as a share of `early_mib`."""
        return self.late_mib / self.early_mib - 1

    def as_json(self) -> dict[str, object]:
        """The figures as a JSON object."""
        return {**asdict(self), "growth": self.growth}

    def table(self) -> Table:
        """The figures as a table for a terminal."""
        table = new_table("Resident memory of the nodes, MiB", ["run", "what"], ["MiB"])
        index = f"inverted index of {self.documents:,} documents"
        table.add_row(index, "largest node, at the end", f"{self.index_mib:.0f}")
        count = f"word count, {self.seconds:.0f} s, {self.records:,} records"
        table.add_row(count, "all nodes, after the beginning", f"{self.early_mib:.0f}")
        table.add_row("", f"all nodes, at the end ({self.growth:+.1%})", f"{self.late_mib:.0f}")
        return table


def measure_memory(documents: Documents, nodes: int, seconds: float, seed: int) -> Memory:
    """Index documents as fast as possible; then count words for `seconds`."""
    peak = _index(documents, nodes)
    samples, records = _count_words(nodes, seconds, Random(seed))
    first = int(len(samples) * FIRST_SHARE)
    return Memory(
        len(documents),
        peak,
        seconds,
        records,
        median(samples[first // 2 : first + 1]),
        median(samples[-max(1, len(samples) // 10) :]),
    )


def _index(documents: Documents, nodes: int) -> float:
    with Engine(documents, "exactly-once", nodes=nodes) as engine:
        closed_loop(engine, Meter(expected_outputs(documents)), 4 * WINDOW)
        return max(process.memory_info().rss / MIB for process in _nodes(engine))


class _Counter(PassingConsumer):
    """A consumer that counts its items."""

    def __init__(self) -> None:
        super().__init__()
        self.items = 0

    def take(self, bundle: Bundle) -> None:
        self.items += sum(len(from_blob(blob)) for blob in bundle.blobs)


def _count_words(nodes: int, seconds: float, chance: Random) -> tuple[list[float], int]:
    """The memory of all nodes together in MiB, every second; and the number of records."""
    counter = _Counter()
    texts = _texts(chance)
    samples: list[float] = []
    sent = 0
    with Engine(
        (), "exactly-once", nodes=nodes, flow="driftline.bench.experiments.memory", consumer=counter
    ) as engine:
        processes = _nodes(engine)
        end = monotonic() + seconds
        sample_at = end - seconds + SAMPLE_EVERY_S
        while (now := monotonic()) < end:
            while sent * WORDS - counter.items < 2 * WINDOW * WORDS:
                engine.put({"text": next(texts)})
                sent += 1
            engine.runtime.step(wait_s=0.05)
            if now >= sample_at:
                sample_at += SAMPLE_EVERY_S
                samples.append(sum(process.memory_info().rss for process in processes) / MIB)
    return samples, sent


def _texts(chance: Random) -> Iterator[str]:
    words = [f"word{number}" for number in range(VOCABULARY)]
    while True:
        yield " ".join(chance.choices(words, k=WORDS))


def _nodes(engine: Engine) -> list[psutil.Process]:
    pids = engine.cluster.pids
    return [psutil.Process(pid) for name, pid in pids.items() if name.startswith("node-")]
