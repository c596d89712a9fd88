"""More like this: a query for what has the words that are typical of a document.

Typical are the words that are often in the document and in few others: tf * idf, as of T.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import nsmallest

from driftline.index.documents.schema import Collection
from driftline.index.documents.writes import version_of
from driftline.index.query.bound import AnyOf, Bound, Word
from driftline.index.search.scoring import rarity
from driftline.index.search.statistics import Statistics

WORDS_MAX = 25
"""Words of such a query."""


def like(
    document: Mapping[str, object], collection: Collection, statistics: Statistics, time: int
) -> Bound | None:
    """A query for documents like this one, which finds this one, too (see `Shard.search`).

    Each word is looked for in the text field in which it is. A word that is in no other document
    would find nothing, and is left out. None: there is no word left.
    """
    typical = nsmallest(WORDS_MAX, _rated(document, collection, statistics, time))
    words = tuple(Word(field, collection.texts[field].name, word) for _, field, word in typical)
    if not words:
        return None
    return Bound(AnyOf(words) if len(words) > 1 else words[0], words)


def _rated(
    document: Mapping[str, object], collection: Collection, statistics: Statistics, time: int
) -> Iterator[tuple[float, int, str]]:
    """(-tf * idf, field, word) of each word."""
    statistics.settle()  # it is asked for many words
    for field, text in enumerate(version_of(collection, "", document).fields):
        documents = statistics.field(field, time).documents
        for word, positions in text.words if text else ():
            having = statistics.documents_with(field, word, time)
            if having > 1:
                yield -len(positions) * rarity(documents, having), field, word
