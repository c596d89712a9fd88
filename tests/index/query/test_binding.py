"""Bound queries: they find what the plainest reading of the query finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.index.documents.analysis import analyser
from driftline.index.documents.schema import (
    Collection,
    StoredField,
    TextField,
    ValueField,
    load_schema,
)
from driftline.index.documents.values import Kind, period_of
from driftline.index.query import bound
from driftline.index.query.binding import bind
from driftline.index.query.errors import QueryError
from driftline.index.query.parsing import parse
from driftline.index.query.syntax import (
    All,
    And,
    Fuzzy,
    In,
    Leaf,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Query,
    Range,
    Words,
)
from tests.index.query.trees import trees
from tests.index.search import model

ARTICLES = Collection(
    "articles",
    (
        ValueField("tags", 0, Kind.KEYWORD),
        TextField("title", 0, analyser("plain"), 2.0),
        StoredField("source"),
        TextField("text", 1, analyser("plain"), 1.0),
        ValueField("year", 1, Kind.NUMBER),
        ValueField("day", 2, Kind.DATE),
    ),
    "refused",
)


@dataclass(frozen=True)
class Document:
    title: str
    text: str
    tags: tuple[str, ...]
    year: float | None
    day: datetime | None


# The plainest reading: True, False, or None for a text without words.


def meant(node: Node, field: str | None, document: Document) -> bool | None:
    match node:
        case In():
            return meant(node.part, node.field, document)
        case Not():
            found = meant(node.part, field, document)
            return None if found is None else not found
        case And() | Or():
            parts = [meant(part, field, document) for part in node.parts]
            known = [part for part in parts if part is not None]
            return (all if isinstance(node, And) else any)(known) if known else None
        case All():
            return field is None or has_any(field, document)
    if field is None:
        return meant(node, "title", document) or meant(node, "text", document)
    if field == "tags":
        prefix = isinstance(node, Prefix)
        assert not isinstance(node, Range)
        return any(
            tag[: len(node.text)] == node.text if prefix else tag == node.text
            for tag in document.tags
        )
    if field == "year":
        return within(node, document.year, float)
    if field == "day":
        day = None if document.day is None else document.day.date().toordinal()
        return within(node, day, lambda text: date.fromisoformat(text).toordinal())
    return in_text(node, re.findall(r"\w+", str(getattr(document, field)).lower()))


def has_any(field: str, document: Document) -> bool:
    match getattr(document, field):
        case str(text):
            return bool(re.findall(r"\w+", text))
        case None | ():
            return False
    return True


def within(leaf: Leaf, value: float | None, read: Callable[[str], float]) -> bool:
    if value is None:
        return False
    if not isinstance(leaf, Range):
        assert isinstance(leaf, (Words, Phrase))
        return value == read(leaf.text)
    low = leaf.low is None or value > read(leaf.low) or (leaf.with_low and value == read(leaf.low))
    high = leaf.high is None or value < read(leaf.high)
    return low and (high or (leaf.high is not None and leaf.with_high and value == read(leaf.high)))


def in_text(leaf: Leaf, words: list[str]) -> bool | None:
    assert not isinstance(leaf, (All, Range))
    asked = re.findall(r"\w+", leaf.text.lower())
    if not asked:
        return None
    match leaf:
        case Prefix():
            return any(word.startswith(asked[0]) for word in words)
        case Fuzzy():
            return any(is_near(word, asked[0]) for word in words)
        case Words() | Phrase():
            slop = leaf.slop if isinstance(leaf, Phrase) else 0
            return has_phrase(words, asked, slop)


def has_phrase(words: list[str], asked: Sequence[str], slop: int) -> bool:
    """Whether no word is further than the slop from its place in the phrase, as it lies best."""
    for places in permutations(range(len(words)), len(asked)):
        if [words[place] for place in places] == list(asked):
            moved = [place - number for number, place in enumerate(places)]
            if max(moved) - min(moved) <= slop:
                return True
    return False


def is_near(word: str, other: str) -> bool:
    """Whether at most one letter more, less or other makes a word of the other."""
    longer, shorter = sorted((word, other), key=len, reverse=True)
    gone = {longer[:n] + longer[n + 1 :] for n in range(len(longer))}
    if len(longer) > len(shorter):
        return shorter in gone
    return sum(map(str.__ne__, word, other)) <= 1


# What an index does with the bound tree, on one document.


def indexed(document: Document) -> model.Document:
    texts = [analyser("plain").words(text) for text in (document.title, document.text)]
    day = None if document.day is None else period_of(document.day.isoformat())[0]
    return model.Document(tuple(map(tuple, texts)), document.tags, document.year, day)


WORDS = ["cat", "cats", "Cat", "at", "dog", "the"]
DAYS = [f"2020-0{month}-{day}" for month in (1, 2) for day in ("01", "02", "29")]

joined = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
documents = st.builds(
    Document,
    joined,
    joined,
    st.lists(st.sampled_from(["cat", "a b", "c"]), max_size=2).map(tuple),
    st.none() | st.integers(0, 4) | st.sampled_from([0.5, 1e300, -1.0]),
    st.none()
    | st.datetimes(datetime(2020, 1, 1), datetime(2020, 3, 1))
    | st.sampled_from(DAYS).map(datetime.fromisoformat),
)

word = st.sampled_from([*WORDS, "-", "..."])
several = st.lists(word, max_size=3).map(" ".join)
text_leaves: st.SearchStrategy[Leaf] = (
    word.map(Words)
    | st.just(Words("the-cat"))
    | st.builds(Phrase, several, st.integers(0, 2))
    | word.map(Prefix)
    | st.sampled_from(["c", "ca", "d."]).map(Prefix)
    | word.map(Fuzzy)
    | st.just(All())
)
keywords = st.sampled_from(["cat", "a b", "c", ""])
keyword_leaves: st.SearchStrategy[Leaf] = keywords.map(Phrase) | st.sampled_from(
    ["cat", "c", "a b"]
).flatmap(lambda text: st.sampled_from([Words(text), Prefix(text), All()]))


def values(texts: list[str]) -> st.SearchStrategy[Leaf]:
    bounds = st.none() | st.sampled_from(texts)

    def make(low: str | None, high: str | None, with_low: bool, with_high: bool) -> Range:
        return Range(low, high, with_low or low is None, with_high or high is None)

    ranges = st.builds(make, bounds, bounds, st.booleans(), st.booleans())
    return st.sampled_from(texts).map(Words) | ranges | st.just(All())


queries = trees(
    st.just(All())
    | text_leaves
    | st.builds(In, st.sampled_from(["title", "text"]), trees(text_leaves))
    | st.builds(In, st.just("tags"), trees(keyword_leaves))
    | st.builds(In, st.just("year"), values(["0", "1", "-1.0", "5e-1", "+3", "1e300"]))
    | st.builds(In, st.just("day"), values(DAYS))
)


@settings(max_examples=600)
@given(queries, st.lists(documents, min_size=1, max_size=5))
def test_a_bound_query_finds_what_is_meant(tree: Node, there: list[Document]) -> None:
    query = parse(str(Query(tree)))
    means = [meant(tree, None, document) for document in there]
    if means[0] is None:
        with pytest.raises(QueryError, match="there is no word to look for"):
            bind(query, ARTICLES)
        return
    root = bind(query, ARTICLES).root
    assert [model.matches(root, indexed(document)) for document in there] == means


@given(queries)
def test_a_bound_tree_is_canonical(tree: Node) -> None:
    try:
        found = bind(parse(str(Query(tree))), ARTICLES)
    except QueryError:
        return
    waiting = [(found.root, True)]
    scoring = []
    while waiting:
        part, scores = waiting.pop()
        match part:
            case bound.AllOf() | bound.AnyOf():
                assert len(part.parts) == len(set(part.parts)) > 1
                assert not any(isinstance(each, type(part)) for each in part.parts)
                waiting += [(each, scores) for each in reversed(part.parts)]
            case bound.Without():
                waiting.append((part.part, False))
            case bound.Word() | bound.BoundPhrase() | bound.WordsFrom() | bound.Near() if scores:
                scoring.append(part)
    assert found.scoring == tuple(dict.fromkeys(scoring))


@pytest.fixture(scope="module")
def articles(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    path = tmp_path_factory.mktemp("schema") / "schema.toml"
    path.write_text(
        """
        [collections.articles.fields]
        title = {kind = "text", analyser = "english"}
        text = {kind = "text", analyser = "cjk"}
        source = {kind = "stored"}
        tags = {kind = "keyword"}
        year = {kind = "number"}
        day = {kind = "date"}
        """
    )
    return load_schema(path).collections["articles"]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Cats", "title:cat OR text:cats"),
        ("running* Running~", "(title:running* OR text:running*) (title:run~ OR text:running~)"),
        ('"big cats"~2', 'title:"big cat"~2 OR text:"big cats"~2'),
        ("東京都", 'title:東京都 OR text:"東京 京都"'),
        ("title:(a OR text:b)", "title:a OR text:b"),
        ("* title:a", "title:a"),
        ("* OR title:a", "* OR title:a"),
        ("title:* -text:*", "title:* -text:*"),
        ("tags:(* OR a)", 'tags:* OR tags:"a"'),
        ("year:* day:*", "year:[* TO *] day:[* TO *]"),
        ("title:(a (b a) -(c d))", "title:a title:b -(title:c title:d)"),
        ("tags:New tags:Yo*", 'tags:"New" tags:Yo*'),
        ("year:{1 TO 2]", "year:[1.0000000000000002 TO 2.0]"),
        ("year:<-1.5", "year:[* TO -1.5000000000000002]"),
        ("day:2020-02-29", 'day:["2020-02-29T00:00:00Z" TO "2020-02-29T23:59:59.999999Z"]'),
        ("day:>2020-02-29", 'day:["2020-03-01T00:00:00Z" TO *]'),
        ("day:<2020-02-29T12:00+01:00", 'day:[* TO "2020-02-29T10:59:59.999999Z"]'),
        ("day:>9999-12-31", 'day:["253402300800000000" TO *]'),
    ],
)
def test_the_form_for_people(articles: Collection, text: str, form: str) -> None:
    assert str(bind(parse(text), articles)) == form


def test_what_scores(articles: Collection) -> None:
    text = 'cat OR (title:cat "big dog") -title:no year:1990 tags:tea title:cat* title:x~ *'
    assert [str(leaf) for leaf in bind(parse(text), articles).scoring] == [
        "title:cat",
        "text:cat",
        'title:"big dog"',
        'text:"big dog"',
        "title:cat*",
        "title:x~",
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "a titel:(b)",
            "there is no field 'titel' (did you mean 'title'?); if it is no field, write "
            "\\ before it, at character 3\n  a titel:(b)\n    ^^^^^",
        ),
        ("http://x", "there is no field 'http'; "),
        ("source:x", "the field 'source' is only stored"),
        ("title:[a TO b]", "'title' is a text, and has no ranges, at character 7"),
        ("a wi-fi*", "* is for one word, and this is several: wi fi, at character 3"),
        ("wi-fi~", "~ is for one word"),
        ('tags:"a b"~1', "'tags' has keywords"),
        ("tags:a~", "'tags' has keywords"),
        ("tags:>a", "'tags' has keywords"),
        ("year:a", "'a' is no number, at character 6\n  year:a\n       ^"),
        ("year:[1 TO b]", "'b' is no number"),
        ("year:1~", "'year' is a number"),
        ("year:1*", "'year' is a number"),
        ('year:"1"~2', "'year' is a number"),
        ("day:2020-02-30", "'2020-02-30' is no date"),
        ("day:>=yesterday", "'yesterday' is no date"),
        ("day:2020*", "'day' is a date"),
        ("-", "there is no word to look for, at character 1"),
        ("NOT (... OR !)", "there is no word to look for"),
    ],
)
def test_what_does_not_fit_the_collection(articles: Collection, text: str, error: str) -> None:
    with pytest.raises(QueryError) as caught:
        bind(parse(text), articles)
    assert str(caught.value).startswith(error)


def test_a_collection_without_texts_is_asked_by_field() -> None:
    numbers = Collection("numbers", (ValueField("year", 0, Kind.NUMBER),), "refused")
    assert str(bind(parse("* year:5"), numbers)) == "year:[5.0 TO 5.0]"
    with pytest.raises(QueryError, match="there is no text field"):
        bind(parse("cat"), numbers)
