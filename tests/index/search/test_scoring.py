"""Top hits are the same as if all versions were scored, although most are skipped."""

from __future__ import annotations

from random import Random

import pytest

from driftline.index.documents.versions import DocumentVersion, words_of
from driftline.index.postings.memory_segment import MemorySegment
from driftline.index.postings.merging import write
from driftline.index.postings.segment import Segment
from driftline.index.query.tree import MatchAll, Not, Or, Phrase, Query, Scoring, Term
from driftline.index.search.matching import Matching
from driftline.index.search.scoring import Scorer, ScoreThreshold, candidates
from driftline.index.search.shard import Shard

VERSIONS = 3000
WORDS = [f"w{rank}" for rank in range(400)]
AT = VERSIONS + 1


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Shard:
    """Return a shard with a segment and two parts in memory; words are Zipf-distributed."""
    rng = Random(5)
    shard = Shard(MemorySegment(0, 1, ()), [1.5])
    weights = [1 / rank for rank in range(1, len(WORDS) + 1)]
    for time in range(VERSIONS):
        if time in (VERSIONS // 2, VERSIONS * 3 // 4):
            shard.seal()
        text = words_of(rng.choices(WORDS, weights, k=rng.choice((3, 30, 90))))
        shard.apply(time, DocumentVersion("c", f"d{rng.randrange(2500)}", (text,), (), b""))
    path = tmp_path_factory.mktemp("parts") / "segment"
    write(shard.parts[:1], path)
    shard.replace_parts(shard.parts[:1], Segment(path))
    return shard


def draw_query(rng: Random) -> Query:
    """Draw a union of words, sometimes with a phrase or a negated word."""
    leaves: list[Scoring] = [_word(rng) for _ in range(rng.randint(1, 6))]
    if rng.random() < 0.2:
        leaves.append(Phrase(0, "text", (_word(rng).word, "w0")))
    leaves = list(dict.fromkeys(leaves))
    parts = [*leaves, Not(_word(rng))] if rng.random() < 0.2 else leaves
    root = Or(tuple(parts)) if len(parts) > 1 else parts[0]
    return Query(root, tuple(leaves))


def _word(rng: Random) -> Term:
    return Term(0, "text", WORDS[int(len(WORDS) ** rng.random()) - 1])


def test_top_hits_equal_the_full_ranking(shard: Shard) -> None:
    """The last query matches all, with equal scores."""
    rng = Random(1)
    for query in (*(draw_query(rng) for _ in range(60)), Query(MatchAll(), ())):
        every = shard.search(query, AT, VERSIONS)
        for limit in (1, 3, 25):
            best = shard.search(query, AT, limit)
            assert (best.total, best.ranked) == (every.total, every.ranked[:limit]), query
            if len(best.ranked) == limit:
                behind = shard.search(query, AT, limit, after=best.ranked[-1].sort_position)
                assert behind.ranked == every.ranked[limit : 2 * limit], query


def test_most_versions_are_not_scored(shard: Shard) -> None:
    """Few versions are scored for a union of the most frequent word and rarer words."""
    rng = Random(1)
    scored = found = 0
    for _ in range(50):
        leaves = tuple(dict.fromkeys((Term(0, "text", "w0"), _word(rng), _word(rng))))
        root = Or(leaves) if len(leaves) > 1 else leaves[0]
        scorer, floor = Scorer(leaves, [1.5], shard.statistics, AT), ScoreThreshold(10)
        for part in shard.parts:
            matching = Matching(part, part.count, leaves)
            mask = matching.mask(root)
            scored += len(candidates(scorer, matching, mask, floor))
            found += int(mask.sum())
    assert scored * 5 < found
