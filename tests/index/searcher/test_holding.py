"""What a collection keeps in memory."""

from __future__ import annotations

import weakref
from pathlib import Path

from driftline.index.documents.versions import Version, Words
from driftline.index.postings.tail import Tail
from driftline.index.search.budget import BUDGET
from driftline.index.searcher.files import Files
from driftline.index.searcher.holding import FREED, Holding
from tests.index.searcher.world import COLLECTION

NO_VALUES = (None,) * len(COLLECTION.values)


def words_left(tail: Tail | None) -> int:
    """How many words of the first field a tail has in memory."""
    assert tail is not None
    return sum(tail.postings(0, word) is not None for word in tail.words(0, ""))


def test_the_memory_of_a_tail_that_is_a_segment_now_is_freed_little_by_little(
    tmp_path: Path,
) -> None:
    """Answers wait for it: to free all of it at once takes some 10 ms."""
    holding = Holding(COLLECTION, Files(tmp_path), lambda id: True, BUDGET)
    words = Words(3 * FREED, tuple((f"w{number:05}", (number,)) for number in range(3 * FREED)))
    holding.apply(1, Version("c", "1", (words, None), NO_VALUES, b"{}"))
    tail = weakref.ref(holding.shard.tail)
    holding.freeze()
    list(holding.save())
    holding.saved()
    left = []
    while tail() is not None:
        left.append(words_left(tail()))
        holding.settle()
    assert left == [3 * FREED, 2 * FREED, FREED]
    postings = holding.segments[0].postings(0, "w00007")
    assert postings is not None
    assert postings.ordinals.tolist() == [0]
