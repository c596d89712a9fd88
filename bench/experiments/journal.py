"""The journal and the key-value view by themselves, in this process: no network, no flow.

Bundles are those of one barrier, each with the outputs of some records: a word and its count, words
by Zipf. They are stored in two ways: each durable by itself, as at low rates, and as many for one
fdatasync as under load. Then the journal is read from its beginning, and a view is made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter

from rich.table import Table

from driftline.engine.flow.flow import Flow
from driftline.engine.labels import Label
from driftline.engine.ui.consoles import new_table
from driftline.engine.wire.bundles import running_checksum, to_blob
from driftline.engine.wire.messages import Bundle
from driftline.serve.journal import Journal, Span
from driftline.serve.views import KeyValueView

TOGETHER = 64
"""Bundles for one fdatasync under load."""

KEYS = 20_000

flow = Flow("word counts")
flow.source("words", fields=("word", "count")).sink("counts")


@dataclass(frozen=True, slots=True)
class Stored:
    """How fast things went, a second."""

    bundles: int
    items: int
    """Of all bundles."""
    durable_per_s: float
    """Bundles, each with an fdatasync of its own."""
    together_per_s: float
    """Bundles, with one for TOGETHER of them."""
    bytes_per_item: float
    replayed_per_s: float
    """Items read from the beginning."""
    applied_per_s: float
    """Items, by the view."""
    found_per_s: float
    """Values of keys as of now."""
    found_before_per_s: float
    """The same, as of an earlier T."""

    def as_json(self) -> dict[str, object]:
        """The figures as a JSON object."""
        return asdict(self)

    def table(self) -> Table:
        """The figures as a table for a terminal."""
        title = f"{self.bundles:,} bundles with {self.items:,} items"
        table = new_table(title, ["part", "what"], ["a second"])
        for part, what, per_s in (
            ("journal", "bundles stored, each durable by itself", self.durable_per_s),
            ("", f"bundles stored, {TOGETHER} for each fdatasync", self.together_per_s),
            ("", "items replayed", self.replayed_per_s),
            ("key-value view", "items applied", self.applied_per_s),
            ("", "values found, as of now", self.found_per_s),
            ("", "values found, as of an earlier T", self.found_before_per_s),
        ):
            table.add_row(part, what, f"{per_s:,.0f}")
        table.caption = f"{self.bytes_per_item:.1f} bytes an item in the journal"
        return table


def measure_journal(bundles: int, items: int, lookups: int, seed: int) -> Stored:
    """Store, replay and look up. `bundles`: those stored each by itself, with `items` each."""
    chance = Random(seed)
    made = _bundles(bundles, items, chance)
    with TemporaryDirectory(prefix="driftline-bench-") as directory:
        durable_s = _timed(lambda: _store(Path(directory) / "durable", made, 1))
        together_s = _timed(lambda: _store(Path(directory) / "together", made, TOGETHER))
        journal = Journal(Path(directory) / "together", flow, "bench")
        size = sum(each.stat().st_size for each in journal.path.glob("segment-*"))
        spans: list[Span] = []
        replay_s = _timed(lambda: spans.extend(journal.read(0)))
        journal.close()
    view = KeyValueView(0)

    def apply() -> None:
        for span in spans:
            view.apply(span.time, span.items)

    def look_up(at: int | None) -> None:
        for key in keys:
            view.get(key, at)

    apply_s = _timed(apply)
    keys = [_word(chance) for _ in range(lookups)]
    found_s, before_s = _timed(lambda: look_up(None)), _timed(lambda: look_up(view.time // 2))
    total = bundles * items
    assert sum([len(span.items) for span in spans]) == total
    return Stored(
        *(bundles, total, bundles / durable_s, bundles / together_s, size / total),
        *(total / replay_s, total / apply_s, lookups / found_s, lookups / before_s),
    )


def _store(path: Path, bundles: list[Bundle], together: int) -> None:
    journal = Journal(path, flow, "bench")
    for number, bundle in enumerate(bundles, 1):
        journal.take(bundle)
        if number % together == 0:
            journal.sync()
    journal.sync()
    journal.close()


def _timed(does: Callable[[], None]) -> float:
    began = perf_counter()
    does()
    return perf_counter() - began


_WEIGHTS = list(accumulate(1 / rank for rank in range(1, KEYS + 1)))


def _word(chance: Random) -> str:
    return f"word{chance.choices(range(KEYS), cum_weights=_WEIGHTS)[0]}"


def _bundles(count: int, items: int, chance: Random) -> list[Bundle]:
    """Bundles of one time each, with the outputs of one record."""
    made, checksum = [], 0
    for time in range(count):
        labels: list[Label] = [(time, 0, number) for number in range(items)]
        blob = to_blob(labels, 0, [(_word(chance), time) for _ in range(items)])
        checksum = running_checksum(checksum, blob)
        made.append(Bundle("barrier-0", 1, (0, flow.groups - 1), (blob,), time, checksum))
    return made
