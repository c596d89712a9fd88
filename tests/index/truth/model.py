"""Sequential model of a whole index: it applies writes in label order and answers as of the last.

The model keeps a dict of documents with their words, and for each word the set of documents that
contain it. It shares only the analysers and the parsed query trees with the index.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import log1p

from driftline.index.documents.schema import Collection
from driftline.index.documents.values import Value, value_of
from driftline.index.query.parsing import parse
from driftline.index.query.tree import (
    And,
    Exists,
    Fuzzy,
    Keyword,
    KeywordPrefix,
    MatchAll,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Range,
    Scoring,
    Term,
)
from tests.index.search.model import distance, frequency, words_of

Hit = tuple[str, float, int]
"""(document, score, label)"""

distance_of = cache(distance)


@dataclass(frozen=True)
class IndexedDocument:
    """Document with the label of its version; `texts`: the words of each text field."""

    label: int
    fields: Mapping[str, object]
    texts: tuple[tuple[str, ...], ...]
    values: tuple[Value | None, ...]


def document_of(
    collection: Collection, label: int, fields: Mapping[str, object]
) -> IndexedDocument:
    """Return the document as the collection indexes it: words of texts, and values."""
    texts = []
    for field in collection.text_fields:
        text = fields.get(field.name)
        texts.append(tuple(field.analyser.words(text)) if isinstance(text, str) else ())
    values = []
    for kind in collection.value_fields:
        value = fields.get(kind.name)
        values.append(None if value is None else value_of(kind.kind, value))
    return IndexedDocument(label, fields, tuple(texts), tuple(values))


class SequentialIndex:
    """Collection as of the last write."""

    def __init__(self, collection: Collection) -> None:
        self.documents: dict[str, IndexedDocument] = {}
        self._collection = collection
        texts = range(len(collection.text_fields))
        self._ids_by_word: list[defaultdict[str, set[str]]] = [defaultdict(set) for _ in texts]
        """For each text field: word -> ids of the documents that contain it."""
        self._count = [0 for _ in texts]
        """For each text field: number of documents with words in it; `_length`: number of words."""
        self._length = [0 for _ in texts]
        self._cache: dict[tuple[str, str], list[Hit]] = {}
        """(query, sort) -> result of a search since the last write."""

    def write(self, label: int, id: str, fields: Mapping[str, object] | None) -> None:
        """Replace a document; `fields` is None to delete it."""
        self._cache.clear()
        before = self.documents.pop(id, None)
        if before is not None:
            self._add(id, before, -1)
        if fields is not None:
            self.documents[id] = document = document_of(self._collection, label, fields)
            self._add(id, document, 1)

    def search(self, query: str, sort: str = "") -> list[Hit]:
        """Return all hits of a query in order. `sort`: a field; a leading "-" means descending."""
        if (query, sort) not in self._cache:
            self._cache[query, sort] = self._search(query, sort)
        return self._cache[query, sort]

    def facet(self, query: str, name: str) -> list[tuple[str, int]]:
        """Return each keyword with the number of hits that have it, most frequent first."""
        counts: Counter[str] = Counter()
        for id, _, _ in self.search(query):
            found = self._value(self.documents[id], name)
            counts.update(set(found) if isinstance(found, tuple) else ())
        return sorted(counts.items(), key=lambda each: (-each[1], each[0]))

    def _search(self, query: str, sort: str) -> list[Hit]:
        tree = parse(query, self._collection)
        hits = []
        for id in self._matching(tree.root):
            document = self.documents[id]
            score = 0.0
            for leaf in () if sort else tree.scoring:
                score += self._score(leaf, document)
            hits.append((id, score, document.label))
        if not sort:
            return sorted(hits, key=lambda hit: (-hit[1], hit[2]))
        hits.sort(key=lambda hit: hit[2])
        name = sort.removeprefix("-")
        texts: list[tuple[str, Hit]] = []
        numbers: list[tuple[float, Hit]] = []
        without_value = []
        for hit in hits:
            match self._value(self.documents[hit[0]], name):
                case None:
                    without_value.append(hit)
                case (first, *_):
                    texts.append((first, hit))
                case int() | float() as number:
                    numbers.append((number, hit))
        # The sort is stable, also in reverse: hits with equal values stay in label order.
        descending = sort.startswith("-")
        texts.sort(key=lambda each: each[0], reverse=descending)
        numbers.sort(key=lambda each: each[0], reverse=descending)
        return [hit for _, hit in texts] + [hit for _, hit in numbers] + without_value

    def _value(self, document: IndexedDocument, name: str) -> Value | None:
        number = next(each.number for each in self._collection.value_fields if each.name == name)
        found = document.values[number]
        return None if found == () else found

    def _add(self, id: str, document: IndexedDocument, sign: int) -> None:
        for number, text in enumerate(document.texts):
            self._count[number] += sign * bool(text)
            self._length[number] += sign * len(text)
            for word in set(text):
                ids_with_word = self._ids_by_word[number][word]
                ids_with_word.add(id) if sign > 0 else ids_with_word.discard(id)

    def _matching(self, part: Node) -> set[str]:
        match part:
            case MatchAll():
                return set(self.documents)
            case And():
                return set.intersection(*map(self._matching, part.parts))
            case Or():
                return set.union(*map(self._matching, part.parts))
            case Not():
                return set(self.documents) - self._matching(part.part)
            case Term():
                return self._ids_by_word[part.field][part.word]
            case Prefix():
                words = self._ids_by_word[part.field].items()
                return set().union(*(ids for word, ids in words if word.startswith(part.prefix)))
            case Fuzzy():
                words = self._ids_by_word[part.field].items()
                near = (ids for word, ids in words if distance_of(part.word, word) <= 1)
                return set().union(*near)
            case Phrase():
                ids_with_word = self._ids_by_word[part.field]
                ids = set.intersection(*(ids_with_word[word] for word in part.words))
                return {id for id in ids if self._frequency(part, self.documents[id])}
            case Exists():
                return {id for id, each in self.documents.items() if each.texts[part.field]}
            case Keyword():
                return self._with_keyword(part.field, lambda word: word == part.keyword)
            case KeywordPrefix():
                return self._with_keyword(part.field, lambda word: word.startswith(part.prefix))
            case Range():
                return {
                    id
                    for id, document in self.documents.items()
                    if isinstance(value := document.values[part.field], int | float)
                    and part.low <= value <= part.high
                }

    def _with_keyword(self, field: int, fits: Callable[[str], bool]) -> set[str]:
        return {
            id
            for id, document in self.documents.items()
            if isinstance(words := document.values[field], tuple) and any(map(fits, words))
        }

    def _frequency(self, leaf: Scoring, document: IndexedDocument) -> int:
        if isinstance(leaf, Fuzzy):
            return sum(distance_of(leaf.word, word) <= 1 for word in document.texts[leaf.field])
        return frequency(leaf, document.texts[leaf.field])

    def _score(self, leaf: Scoring, document: IndexedDocument) -> float:
        """Return the BM25 score, with the documented order of floating-point operations."""
        occurrences = self._frequency(leaf, document)
        if not occurrences:
            return 0.0
        count, length = self._count[leaf.field], self._length[leaf.field]
        idf = 0.0
        for word in words_of(leaf):
            ids_with_word = len(self._ids_by_word[leaf.field][word])
            idf += log1p((count - ids_with_word + 0.5) / (ids_with_word + 0.5))
        weight = self._collection.text_fields[leaf.field].weight * (idf if words_of(leaf) else 1.0)
        relative = float(len(document.texts[leaf.field])) * count / length
        return (
            weight * (occurrences * (1.2 + 1)) / (occurrences + 1.2 * (1 - 0.75 + 0.75 * relative))
        )
