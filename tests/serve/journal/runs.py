"""Bundles as the barriers of a run make them, in an order in which a journal may get them."""

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

chances = st.builds(Random, st.integers(0, 2**32))
"""What is drawn is random, without the limits of what hypothesis draws by itself."""


@dataclass(frozen=True)
class Run:
    """What the barriers of a run send, and what their outputs are."""

    bundles: list[Bundle]
    items: list[Item]
    """All of them, in label order."""

    def below(self, time: int, since: int = 0) -> list[Item]:
        """The outputs with times in [since, time)."""
        return [item for item in self.items if since <= item.label[0] < time]


def run_of(chance: Random, layouts: int = 3, times: int = 12) -> Run:
    """A run with some layouts, one after the other, of about so many times each."""
    bundles: list[Bundle] = []
    everything: list[Item] = []
    first = start = 0
    for layout in range(chance.randint(1, layouts)):
        nodes = chance.randint(1, 3)
        cut = start + chance.randint(1, times)
        ways = []
        for place in range(nodes):
            groups = owned_groups(place, nodes, FLOW.groups)
            items = _items(chance, start, cut, place)
            everything += items
            name = f"barrier-{first + place}"
            ways.append(_bundles(chance, name, (groups[0], groups[-1]), items, start, cut))
        bundles += _mixed(chance, ways)
        first += nodes
        start = cut + chance.randint(0, layout)
    return Run(bundles, sorted(everything, key=lambda item: item.label))


def _items(chance: Random, start: int, cut: int, place: int) -> list[Item]:
    items = []
    for time in range(start, cut):
        for number in range(chance.choice((0, 0, 1, 1, 3))):
            label = (time, 0, number, place) if chance.random() < 0.7 else (time, 0, place, number)
            sink = chance.choice((0, 0, 1, FAILURES))
            word = chance.choice(("a", "b", "ab", "слово", "c"))
            value = FAILURE if sink == FAILURES else (word, chance.randint(0, 99))
            items.append(Item(label, sink, value))
    by_label = {item.label: item for item in items}
    return [by_label[label] for label in sorted(by_label)]


def _bundles(
    chance: Random, barrier: str, groups: tuple[int, int], items: list[Item], start: int, cut: int
) -> list[Bundle]:
    bundles, checksum = [], 0
    times = cut - start
    while start < cut:
        end = chance.randint(start + 1, min(cut, start + chance.choice((1, 2, times))))
        blobs = []
        for time in range(start, end):
            if mine := [item for item in items if item.label[0] == time]:
                columns = zip(*((item.label, item.sink, item.value) for item in mine), strict=True)
                labels, sinks, values = map(list, columns)
                blobs.append(to_blob(labels, sinks, values))
                checksum = running_checksum(checksum, blobs[-1])
        bundles.append(Bundle(barrier, 1, groups, tuple(blobs), end - 1, checksum))
        start = end
    return bundles


def _mixed(chance: Random, ways: list[list[Bundle]]) -> list[Bundle]:
    """The bundles of all barriers, those of each in order."""
    waiting = [list(way) for way in ways if way]
    mixed = []
    while waiting:
        way = chance.choice(waiting)
        mixed.append(way.pop(0))
        waiting = [way for way in waiting if way]
    return mixed


def opened(path: Path, segment_bytes: int = 1 << 26, identity: str = "me") -> Journal:
    """The journal of such a run."""
    return Journal(path, FLOW, identity, segment_bytes=segment_bytes)


def after_crash(journal: Journal, path: Path, copy: Path, chance: Random) -> Path:
    """The directory as a power cut may leave it."""
    log = journal._log
    durable, length = log._tail[1], log._length
    journal.close()
    shutil.copytree(path, copy)
    file = copy / f"segment-{log.last:08}"
    data = bytearray(file.read_bytes())
    assert len(data) == length
    for _ in range(chance.choice((0, 0, 1, 3))):
        if durable < length:
            at = chance.randrange(durable, length)
            until = chance.randrange(at, length)
            data[at:until] = bytes(until - at)
    file.write_bytes(data[: chance.randint(durable, length)])
    return copy
