"""A sequential model of a whole index: writes go in, in label order, and it answers as of now.

It is as plain as can be: the documents are in a dict, with the words of each, and for each word the
set of those that have it. With the index it shares the analysers, and the tree of a bound query.
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
class Document:
    """A document with the label of its version; `texts`: the words of each text field."""

    label: int
    fields: Mapping[str, object]
    texts: tuple[tuple[str, ...], ...]
    values: tuple[Value | None, ...]


def document_of(collection: Collection, label: int, fields: Mapping[str, object]) -> Document:
    """The words and values of a document, as the collection has them."""
    texts = []
    for field in collection.text_fields:
        text = fields.get(field.name)
        texts.append(tuple(field.analyser.words(text)) if isinstance(text, str) else ())
    values = []
    for kind in collection.value_fields:
        value = fields.get(kind.name)
        values.append(None if value is None else value_of(kind.kind, value))
    return Document(label, fields, tuple(texts), tuple(values))


class SequentialIndex:
    """One collection as of the last write."""

    def __init__(self, collection: Collection) -> None:
        self.documents: dict[str, Document] = {}
        self._collection = collection
        texts = range(len(collection.text_fields))
        self._having: list[defaultdict[str, set[str]]] = [defaultdict(set) for _ in texts]
        """Per text field: word -> the documents that have it."""
        self._count = [0 for _ in texts]
        """Documents that have words in a field; `_length`: how many words in all."""
        self._length = [0 for _ in texts]
        self._found: dict[tuple[str, str], list[Hit]] = {}
        """What searches have found since the last write."""

    def write(self, label: int, id: str, fields: Mapping[str, object] | None) -> None:
        """A document is put in place of what is there; None: it is deleted."""
        self._found.clear()
        before = self.documents.pop(id, None)
        if before is not None:
            self._add(id, before, -1)
        if fields is not None:
            self.documents[id] = document = document_of(self._collection, label, fields)
            self._add(id, document, 1)

    def search(self, query: str, sort: str = "") -> list[Hit]:
        """All that a query finds, in order. `sort`: a field, with "-" before it descending."""
        if (query, sort) not in self._found:
            self._found[query, sort] = self._search(query, sort)
        return self._found[query, sort]

    def facet(self, query: str, name: str) -> list[tuple[str, int]]:
        """How many of the documents found have each keyword."""
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
        without = []
        for hit in hits:
            match self._value(self.documents[hit[0]], name):
                case None:
                    without.append(hit)
                case (first, *_):
                    texts.append((first, hit))
                case int() | float() as number:
                    numbers.append((number, hit))
        # A stable sort, also in reverse: what is equal stays in the order of labels.
        down = sort.startswith("-")
        texts.sort(key=lambda each: each[0], reverse=down)
        numbers.sort(key=lambda each: each[0], reverse=down)
        return [hit for _, hit in texts] + [hit for _, hit in numbers] + without

    def _value(self, document: Document, name: str) -> Value | None:
        number = next(each.number for each in self._collection.value_fields if each.name == name)
        found = document.values[number]
        return None if found == () else found

    def _add(self, id: str, document: Document, sign: int) -> None:
        for number, text in enumerate(document.texts):
            self._count[number] += sign * bool(text)
            self._length[number] += sign * len(text)
            for word in set(text):
                having = self._having[number][word]
                having.add(id) if sign > 0 else having.discard(id)

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
                return self._having[part.field][part.word]
            case Prefix():
                words = self._having[part.field].items()
                return set().union(*(ids for word, ids in words if word.startswith(part.prefix)))
            case Fuzzy():
                words = self._having[part.field].items()
                near = (ids for word, ids in words if distance_of(part.word, word) <= 1)
                return set().union(*near)
            case Phrase():
                having = self._having[part.field]
                ids = set.intersection(*(having[word] for word in part.words))
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

    def _frequency(self, leaf: Scoring, document: Document) -> int:
        if isinstance(leaf, Fuzzy):
            return sum(distance_of(leaf.word, word) <= 1 for word in document.texts[leaf.field])
        return frequency(leaf, document.texts[leaf.field])

    def _score(self, leaf: Scoring, document: Document) -> float:
        """BM25, in the order of operations that is promised."""
        often = self._frequency(leaf, document)
        if not often:
            return 0.0
        count, length = self._count[leaf.field], self._length[leaf.field]
        rare = 0.0
        for word in words_of(leaf):
            having = len(self._having[leaf.field][word])
            rare += log1p((count - having + 0.5) / (having + 0.5))
        weight = self._collection.text_fields[leaf.field].weight * (rare if words_of(leaf) else 1.0)
        relative = float(len(document.texts[leaf.field])) * count / length
        return weight * (often * (1.2 + 1)) / (often + 1.2 * (1 - 0.75 + 0.75 * relative))
