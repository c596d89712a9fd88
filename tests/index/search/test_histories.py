"""Counts as of each retained time, against sums over the list of all changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from driftline.index.search.histories import FORGETS, TRIMMED_EVERY, Counts
from driftline.index.search.saving import Saved

CHANGES = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.sampled_from((-1, 1))))


@given(CHANGES, st.integers(0, 200), st.integers(0, 200), st.integers(0, 200))
def test_counts_are_the_sums_of_all_earlier_changes(
    changes: list[tuple[int, str, int]], moment: int, since: int, saved: int
) -> None:
    counts, time, all_changes = Counts(), 0, []
    for number, (step, word, change) in enumerate(changes):
        time += step
        if number == moment:
            counts.retain(min(since, time))
        if number == saved:
            counts = Counts.load(Saved(list(counts.save())))
        counts.add(time, [word], change)
        all_changes.append((time, word, change))
    for word in "ab":
        for before in range(min(since, time), time + 2):
            expected = sum(c for t, w, c in all_changes if w == word and t < before)
            assert counts.before(word, before) == expected


def test_what_is_not_retained_takes_no_memory() -> None:
    counts = Counts()
    for time in range(10 * TRIMMED_EVERY):
        counts.add(time, ["often", f"once {time}"], 1)
        counts.retain(time - 5)
    assert len(counts._changing) <= 8
    assert len(counts._changing["often"]) <= TRIMMED_EVERY + 5
    assert counts.before("often", 10 * TRIMMED_EVERY) == 10 * TRIMMED_EVERY
    loaded = Counts.load(Saved(list(counts.save())))
    assert loaded._since == counts._since
    loaded.retain(10 * TRIMMED_EVERY)
    assert not Counts.load(Saved(list(loaded.save())))._changing


def test_what_is_not_retained_is_forgotten_little_by_little() -> None:
    """Answers wait for it: so for a bounded part of it at a time."""
    counts = Counts()
    counts.add(0, [f"once {number}" for number in range(10 * FORGETS)], 1)
    counts.retain(1)
    left = []
    for time in range(1, 21):
        counts.add(time, [f"new {number}" for number in range(FORGETS // 4)], 1)
        left.append(sum(word.startswith("once") for word in counts._changing) // FORGETS)
    assert left == [each for each in (10, 8, 6, 4, 2, 0) for _ in range(4)][1 : 20 + 1]
    assert counts.before("once 7", 21) == 1
