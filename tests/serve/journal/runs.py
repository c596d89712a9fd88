"""Random bundles of the barriers of a run, in an order in which a journal may receive them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from driftline.engine.flow.flow import Flow
from driftline.engine.keygroups import owned_groups
from driftline.engine.operators.steps import FAILURES
from driftline.engine.wire.bundles import Item, running_checksum, to_blob
from driftline.engine.wire.messages import Bundle
from driftline.serve.journal import Journal

FLOW = Flow("counts", groups=8)
_words = FLOW.source("words", fields=("word", "count"))
_words.sink("counts")
_words.map(lambda word: word).sink("others")

FAILURE = ("scan 'count'", "'a'", {"id": 1}, "ValueError: bad", "flow.py:1, in count: raise", "")

rngs = st.builds(Random, st.integers(0, 2**32))
"""A seeded generator can draw more data than hypothesis itself would."""


@dataclass(frozen=True)
class SimulatedRun:
    """Bundles of all barriers of a run, and the outputs in them."""

    bundles: list[Bundle]
    items: list[Item]
    """All outputs in label order."""

    def below(self, time: int, since: int = 0) -> list[Item]:
        """Return the outputs with times in [since, time)."""
        return [item for item in self.items if since <= item.label[0] < time]


def draw_run(rng: Random, layouts: int = 3, times: int = 12) -> SimulatedRun:
    """Draw a run with up to `layouts` successive layouts of up to `times` times each."""
    bundles: list[Bundle] = []
    all_items: list[Item] = []
    first = start = 0
    for layout in range(rng.randint(1, layouts)):
        nodes = rng.randint(1, 3)
        cut = start + rng.randint(1, times)
        bundles_by_barrier = []
        for position in range(nodes):
            groups = owned_groups(position, nodes, FLOW.groups)
            items = _items(rng, start, cut, position)
            all_items += items
            name = f"barrier-{first + position}"
            bundles_by_barrier.append(
                _bundles(rng, name, (groups[0], groups[-1]), items, start, cut)
            )
        bundles += _interleave(rng, bundles_by_barrier)
        first += nodes
        start = cut + rng.randint(0, layout)
    return SimulatedRun(bundles, sorted(all_items, key=lambda item: item.label))


def _items(rng: Random, start: int, cut: int, position: int) -> list[Item]:
    items = []
    for time in range(start, cut):
        for number in range(rng.choice((0, 0, 1, 1, 3))):
            label = (
                (time, 0, number, position) if rng.random() < 0.7 else (time, 0, position, number)
            )
            sink = rng.choice((0, 0, 1, FAILURES))
            word = rng.choice(("a", "b", "ab", "слово", "c"))
            value = FAILURE if sink == FAILURES else (word, rng.randint(0, 99))
            items.append(Item(label, sink, value))
    by_label = {item.label: item for item in items}
    return [by_label[label] for label in sorted(by_label)]


def _bundles(
    rng: Random, barrier: str, groups: tuple[int, int], items: list[Item], start: int, cut: int
) -> list[Bundle]:
    bundles, checksum = [], 0
    times = cut - start
    while start < cut:
        end = rng.randint(start + 1, min(cut, start + rng.choice((1, 2, times))))
        blobs = []
        for time in range(start, end):
            if items_at_time := [item for item in items if item.label[0] == time]:
                columns = zip(
                    *((item.label, item.sink, item.value) for item in items_at_time), strict=True
                )
                labels, sinks, values = map(list, columns)
                blobs.append(to_blob(labels, sinks, values))
                checksum = running_checksum(checksum, blobs[-1])
        bundles.append(Bundle(barrier, 1, groups, tuple(blobs), end - 1, checksum))
        start = end
    return bundles


def _interleave(rng: Random, bundles_by_barrier: list[list[Bundle]]) -> list[Bundle]:
    """Interleave the bundles of all barriers, and keep the order of each barrier."""
    waiting = [
        list(bundles_of_barrier) for bundles_of_barrier in bundles_by_barrier if bundles_of_barrier
    ]
    interleaved = []
    while waiting:
        bundles_of_barrier = rng.choice(waiting)
        interleaved.append(bundles_of_barrier.pop(0))
        waiting = [bundles_of_barrier for bundles_of_barrier in waiting if bundles_of_barrier]
    return interleaved


def open_journal(path: Path, segment_bytes: int = 1 << 26, identity: str = "me") -> Journal:
    """Open the journal of a simulated run."""
    return Journal(path, FLOW, identity, segment_bytes=segment_bytes)


def copy_after_crash(journal: Journal, path: Path, copy: Path, rng: Random) -> Path:
    """Close the journal and copy its directory to a state that a power cut may leave."""
    log = journal._log
    durable, length = log._tail[1], log._length
    journal.close()
    shutil.copytree(path, copy)
    file = copy / f"segment-{log.last:08}"
    data = bytearray(file.read_bytes())
    assert len(data) == length
    for _ in range(rng.choice((0, 0, 1, 3))):
        if durable < length:
            at = rng.randrange(durable, length)
            until = rng.randrange(at, length)
            data[at:until] = bytes(until - at)
    file.write_bytes(data[: rng.randint(durable, length)])
    return copy
