"""Statistics and counts as of each retained time, against simple sums."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from driftline.index.documents.versions import DocumentVersion, ReplacedField, Words, words_of
from driftline.index.search.checkpoint_codec import CheckpointReader
from driftline.index.search.statistics import (
    TRIM_INTERVAL,
    Counts,
    FieldStatistics,
    Statistics,
)

WORDS = "abc"
FIELDS = 2

TEXTS = st.tuples(*[st.none() | st.lists(st.sampled_from(WORDS), max_size=4)] * FIELDS)
"""Words of the text fields of a version."""

ACTIONS = st.lists(st.sampled_from(("settle", "save", "retain")), max_size=2)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), TEXTS, ACTIONS), max_size=30))
def test_statistics_equal_those_of_the_current_versions(
    changes: list[tuple[int, int, tuple[list[str] | None, ...], list[str]]],
) -> None:
    statistics, time, since = Statistics(FIELDS), 0, 0
    alive: dict[int, tuple[Words | None, ...]] = {}
    history = [(0, dict(alive))]
    for step, document, texts, actions in changes:
        time += step
        fields = tuple(None if text is None else words_of(text) for text in texts)
        before = alive.get(document)
        statistics.apply(
            time, DocumentVersion("c", str(document), fields, (), b"", replaced=replaced(before))
        )
        alive[document] = fields
        history.append((time + 1, dict(alive)))
        for action in actions:
            if action == "settle":
                statistics.count_deferred()
            elif action == "save":
                statistics = Statistics.load(CheckpointReader(list(statistics.save())), FIELDS)
            else:
                since = max(since, time - 2)
                statistics.forget_before(since)
        for at in range(since, time + 2):
            current = next(found for begin, found in reversed(history) if begin <= at)
            for field in range(FIELDS):
                check(statistics, field, at, [each[field] for each in current.values()])


def replaced(fields: tuple[Words | None, ...] | None) -> tuple[ReplacedField | None, ...] | None:
    """Describe the fields of a replaced version."""
    if fields is None:
        return None
    return tuple(
        None
        if field is None
        else ReplacedField(field.length, tuple(word for word, _ in field.words))
        for field in fields
    )


def check(statistics: Statistics, field: int, time: int, current: list[Words | None]) -> None:
    """Check the statistics of a field against the texts of the current documents."""
    texts = [text for text in current if text is not None and text.words]
    length = sum(text.length for text in texts)
    assert statistics.field(field, time) == FieldStatistics(len(texts), length)
    for word in WORDS:
        documents_with_word = sum(word in dict(text.words) for text in texts)
        assert statistics.document_frequency(field, word, time) == documents_with_word


CHANGES = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.sampled_from((-1, 1))))


@given(CHANGES, st.integers(0, 200), st.integers(0, 200), st.integers(0, 200))
def test_counts_are_the_sums_of_all_earlier_changes(
    changes: list[tuple[int, str, int]], moment: int, since: int, saved: int
) -> None:
    counts, time, all_changes = Counts(), 0, []
    for number, (step, word, change) in enumerate(changes):
        time += step
        if number == moment:
            counts.forget_before(min(since, time))
        if number == saved:
            counts = Counts.load(CheckpointReader(list(counts.save())))
        counts.add(time, [word], change)
        all_changes.append((time, word, change))
    for word in "ab":
        for before in range(min(since, time), time + 2):
            expected = sum(c for t, w, c in all_changes if w == word and t < before)
            assert counts.before(word, before) == expected


def test_counts_before_retention_are_freed() -> None:
    counts = Counts()
    for time in range(10 * TRIM_INTERVAL):
        counts.add(time, ["often", f"once {time}"], 1)
        counts.forget_before(time - 5)
    assert len(counts._changing) <= 8
    assert len(counts._changing["often"]) <= TRIM_INTERVAL + 5
    assert counts.before("often", 10 * TRIM_INTERVAL) == 10 * TRIM_INTERVAL
    loaded = Counts.load(CheckpointReader(list(counts.save())))
    assert loaded._since == counts._since
    loaded.forget_before(10 * TRIM_INTERVAL)
    assert not Counts.load(CheckpointReader(list(loaded.save())))._changing
