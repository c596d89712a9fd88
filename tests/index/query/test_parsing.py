"""Parsing of queries: which documents they match, canonical form, and errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.index.documents.analysis import analyser
from driftline.index.documents.schema import Collection, StoredField, TextField, ValueField
from driftline.index.documents.values import Kind, period_of
from driftline.index.query.parsing import (
    DEPTH_MAX,
    EXPANDED_MAX,
    LEAVES_MAX,
    LENGTH_MAX,
    QueryError,
    parse,
)
from driftline.index.query.tree import (
    And,
    Fuzzy,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Query,
    Term,
    leaves,
)
from tests.index.search import model


def collection(title: str, text: str) -> Collection:
    """Return a collection with a field of each kind and the given analysers."""
    fields = (
        TextField("title", 0, analyser(title), 2.0),
        TextField("text", 1, analyser(text), 1.0),
        StoredField("source"),
        ValueField("tags", 0, Kind.KEYWORD),
        ValueField("year", 1, Kind.NUMBER),
        ValueField("day", 2, Kind.DATE),
    )
    return Collection("articles", fields, "refused")


PLAIN = collection("plain", "plain")
ARTICLES = collection("english", "cjk")
ONE = Collection("one", (TextField("t", 0, analyser("plain"), 1.0), *PLAIN.fields[3:]), "refused")


@dataclass(frozen=True)
class SampleDocument:
    title: str
    text: str
    tags: tuple[str, ...]
    year: float | None
    day: datetime | None


# Query texts, each with a simple matcher: True, False, or None for a text without words.

Matcher = Callable[[str | None, SampleDocument], bool | None]


@dataclass(frozen=True)
class QueryCase:
    """Query text, and whether it matches a document in a field or, for None, in any field."""

    text: str
    matches: Matcher


def negated(part: QueryCase) -> QueryCase:
    def matches(field: str | None, document: SampleDocument) -> bool | None:
        found = part.matches(field, document)
        return None if found is None else not found

    return QueryCase(f"-({part.text})", matches)


def group(parts: list[QueryCase], every: bool) -> QueryCase:
    def matches(field: str | None, document: SampleDocument) -> bool | None:
        found = [part.matches(field, document) for part in parts]
        known = [each for each in found if each is not None]
        return (all if every else any)(known) if known else None

    return QueryCase((" " if every else " OR ").join(f"({part.text})" for part in parts), matches)


def within_field(name: str, part: QueryCase) -> QueryCase:
    return QueryCase(f"{name}:({part.text})", lambda _, document: part.matches(name, document))


def combined(cases: st.SearchStrategy[QueryCase]) -> st.SearchStrategy[QueryCase]:
    return st.recursive(
        cases,
        lambda some: (
            some.map(negated)
            | st.builds(group, st.lists(some, min_size=2, max_size=3), st.booleans())
        ),
        max_leaves=8,
    )


def in_texts(text: str, fits: Callable[[list[str], list[str]], bool]) -> QueryCase:
    """Return a leaf for text fields; `fits(words of a text, words of the query)`."""
    query_words = re.findall(r"\w+", text.lower())

    def matches(field: str | None, document: SampleDocument) -> bool | None:
        if not query_words:
            return None
        fields = ("title", "text") if field is None else (field,)
        texts = [re.findall(r"\w+", getattr(document, name).lower()) for name in fields]
        return any(fits(words, query_words) for words in texts)

    return QueryCase(text, matches)


def phrase(text: str) -> QueryCase:
    return QueryCase(f'"{text}"', in_texts(text, has_phrase).matches)


def prefix(text: str) -> QueryCase:
    def fits(words: list[str], query_words: list[str]) -> bool:
        return any(word.startswith(query_words[0]) for word in words)

    return QueryCase(f"{text}*", in_texts(text, fits).matches)


def fuzzy(text: str) -> QueryCase:
    def fits(words: list[str], query_words: list[str]) -> bool:
        return any(is_near(word, query_words[0]) for word in words)

    return QueryCase(f"{text}~", in_texts(text, fits).matches)


def has_phrase(words: list[str], query_words: list[str]) -> bool:
    """Whether the words of the query occur as a phrase."""
    return any(words[i : i + len(query_words)] == query_words for i in range(len(words)))


def is_near(word: str, other: str) -> bool:
    """Whether the words differ by at most one inserted, deleted or replaced letter."""
    longer, shorter = sorted((word, other), key=len, reverse=True)
    with_one_deleted = {longer[:n] + longer[n + 1 :] for n in range(len(longer))}
    if len(longer) > len(shorter):
        return shorter in with_one_deleted
    return sum(map(str.__ne__, word, other)) <= 1


def has_any(field: str | None, document: SampleDocument) -> bool:
    found = None if field is None else getattr(document, field)
    if isinstance(found, str):
        return bool(re.findall(r"\w+", found))
    return field is None or found not in (None, ())


def tag(text: str, quoted: bool) -> QueryCase:
    written = f'tags:"{text}"' if quoted or " " in text or not text else f"tags:{text}"
    return QueryCase(written, lambda _, document: text in document.tags)


def tag_prefix(text: str) -> QueryCase:
    return QueryCase(
        f"tags:{text}*", lambda _, document: any(each.startswith(text) for each in document.tags)
    )


def year_of(document: SampleDocument) -> float | None:
    return document.year


def day_of(document: SampleDocument) -> float | None:
    return None if document.day is None else document.day.date().toordinal()


def ordinal_of(text: str) -> float:
    return date.fromisoformat(text).toordinal()


def ranges(name: str, texts: list[str]) -> st.SearchStrategy[QueryCase]:
    read: Callable[[str], float] = float if name == "year" else ordinal_of
    value_of = year_of if name == "year" else day_of

    def one(text: str) -> QueryCase:
        return QueryCase(f"{name}:{text}", lambda _, document: value_of(document) == read(text))

    def make(
        low: str | None, high: str | None, low_inclusive: bool, high_inclusive: bool
    ) -> QueryCase:
        def matches(_: str | None, document: SampleDocument) -> bool:
            value = value_of(document)
            if value is None:
                return False
            return (
                low is None or value > read(low) or (low_inclusive and value == read(low))
            ) and (high is None or value < read(high) or (high_inclusive and value == read(high)))

        ends = "{["[low_inclusive], low or "*", high or "*", "}]"[high_inclusive]
        return QueryCase("{}:{}{} TO {}{}".format(name, *ends), matches)

    bounds = st.none() | st.sampled_from(texts)
    exists = st.just(QueryCase(f"{name}:*", lambda _, document: value_of(document) is not None))
    intervals = st.builds(make, bounds, bounds, st.booleans(), st.booleans())
    return st.sampled_from(texts).map(one) | intervals | exists


WORDS = ["cat", "cats", "Cat", "at", "dog", "the"]
DAYS = [f"2020-0{month}-{day}" for month in (1, 2) for day in ("01", "02", "29")]
word = st.sampled_from([*WORDS, "\\-", "..."])
words = st.lists(st.sampled_from([*WORDS, "-", "..."]), max_size=3).map(" ".join)
text_leaves = (
    word.map(lambda text: in_texts(text, has_phrase))
    | st.just(in_texts("the-cat", has_phrase))
    | words.map(phrase)
    | (word | st.sampled_from(["c", "ca", "d."])).map(prefix)
    | word.map(fuzzy)
    | st.just(QueryCase("*", has_any))
)
keywords = st.sampled_from(["cat", "a b", "c", ""])
queries = combined(
    text_leaves
    | st.builds(within_field, st.sampled_from(["title", "text"]), combined(text_leaves))
    | st.builds(tag, keywords, st.booleans())
    | st.sampled_from(["c", "a"]).map(tag_prefix)
    | st.just(QueryCase("tags:*", lambda _, document: bool(document.tags)))
    | ranges("year", ["0", "1", "-1.0", "5e-1", "+3", "1e300"])
    | ranges("day", DAYS)
)

joined = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
documents = st.builds(
    SampleDocument,
    joined,
    joined,
    st.lists(st.sampled_from(["cat", "a b", "c"]), max_size=2).map(tuple),
    st.none() | st.integers(0, 4) | st.sampled_from([0.5, 1e300, -1.0]),
    st.none()
    | st.datetimes(datetime(2020, 1, 1), datetime(2020, 3, 1))
    | st.sampled_from(DAYS).map(datetime.fromisoformat),
)


def indexed(document: SampleDocument) -> model.ModelDocument:
    texts = [analyser("plain").words(text) for text in (document.title, document.text)]
    day = None if document.day is None else period_of(document.day.isoformat())[0]
    return model.ModelDocument(tuple(map(tuple, texts)), document.tags, document.year, day)


@settings(max_examples=120)
@given(queries, st.lists(documents, min_size=1, max_size=5))
def test_parsed_query_matches_the_intended_documents(
    case: QueryCase, there: list[SampleDocument]
) -> None:
    expected = [case.matches(None, document) for document in there]
    if expected[0] is None:
        with pytest.raises(QueryError, match="the query contains no word"):
            parse(case.text, PLAIN)
        return
    root = parse(case.text, PLAIN).root
    assert [model.matches(root, indexed(document)) for document in there] == expected


@settings(max_examples=120)
@given(queries)
def test_query_tree_is_canonical_and_round_trips(case: QueryCase) -> None:
    try:
        query = parse(case.text, PLAIN)
    except QueryError:
        return
    waiting, scored = [(query.root, True)], dict[Node, None]()
    while waiting:
        part, scores = waiting.pop()
        match part:
            case And() | Or():
                assert len(part.parts) == len(set(part.parts)) > 1
                assert not any(isinstance(each, type(part)) for each in part.parts)
                waiting += [(each, scores) for each in reversed(part.parts)]
            case Not():
                waiting.append((part.part, False))
            case Term() | Phrase() | Prefix() | Fuzzy() if scores:
                scored[part] = None
    assert query.scoring == tuple(scored)
    if len(str(query)) <= LENGTH_MAX and len(list(leaves(query.root))) <= LEAVES_MAX:
        assert parse(str(query), PLAIN) == query


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("", "*"),
        (" \n", "*"),
        ("a b", "t:a t:b"),
        ("a OR b c", "t:a OR t:b t:c"),
        ("a and b", "t:a t:and t:b"),
        ("(a OR b) c", "(t:a OR t:b) t:c"),
        ("-a NOT b", "-t:a -t:b"),
        ("NOT (a b)", "-(t:a t:b)"),
        ("+a -(b OR c)", "t:a -(t:b OR t:c)"),
        ("a-b a+b", 't:"a b"'),
        ("a - b -> --c", "t:a t:b t:c"),
        ("NOT = -x= NOT -", "-t:x"),
        ('"a b" c', 't:"a b" t:c'),
        (r'tags:"a \" \\"', r'tags:"a \" \\"'),
        ("a* b~ c~1", "t:a* t:b~ t:c~"),
        ("t:a:b", 't:"a b"'),
        ("-tags:-a", '-tags:"-a"'),
        ('t:(a OR -b) "c"', "(t:a OR -t:b) t:c"),
        ("t:(a tags:b)", 't:a tags:"b"'),
        ("tags:(10:30 C++ [x] a=b)", 'tags:"10:30" tags:"C++" tags:"[x]" tags:"a=b"'),
        (r"tags:(\AND \-a \* a\ b t\:a)", 'tags:"AND" tags:"-a" tags:"*" tags:"a b" tags:"t:a"'),
        (r"tags:(tea\^2* t\?a* \/tea/* \!b* \||* a* 東*)", None),
        ("tags:(tea? and/or /tmp x^y)", 'tags:"tea?" tags:"and/or" tags:"/tmp" tags:"x^y"'),
        ("ANDROID NOTA OR ORB", "t:android t:nota OR t:orb"),
        ("year:{1 TO 2]", "year:[1.0000000000000002 TO 2.0]"),
        ('year:["1" TO "2"]', "year:[1.0 TO 2.0]"),
        ("year:>=-1 year:<=2", "year:[-1.0 TO *] year:[* TO 2.0]"),
        ("year:>1 TO", "year:[1.0000000000000002 TO *] t:to"),
    ],
)
def test_text_parses_to_its_canonical_form(text: str, form: str | None) -> None:
    query = parse(text, ONE)
    assert form is None or str(query) == form
    assert parse(str(query), ONE) == query


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Cats", "title:cat OR text:cats"),
        ("running* Running~", "(title:running* OR text:running*) (title:run~ OR text:running~)"),
        ('"big cats"', 'title:"big cat" OR text:"big cats"'),
        ("東京都", 'title:東京都 OR text:"東京 京都"'),
        ("* title:a", "title:a"),
        ("year:* day:*", "year:[* TO *] day:[* TO *]"),
        ("title:(a (b a) -(c d))", "title:a title:b -(title:c title:d)"),
        ("year:<-1.5", "year:[* TO -1.5000000000000002]"),
        ("day:2020-02-29", 'day:["2020-02-29T00:00:00Z" TO "2020-02-29T23:59:59.999999Z"]'),
        ("day:>2020-02-29", 'day:["2020-03-01T00:00:00Z" TO *]'),
        ("day:<2020-02-29T12:00+01:00", 'day:[* TO "2020-02-29T10:59:59.999999Z"]'),
        ("day:>9999-12-31", 'day:["253402300800000000" TO *]'),
    ],
)
def test_query_prints_in_its_canonical_form(text: str, form: str) -> None:
    assert str(parse(text, ARTICLES)) == form


@settings(max_examples=120)
@given(st.text("ab_3é", max_size=4) | st.sampled_from(["AND", "OR", "NOT", "ANDY", "TO"]))
def test_single_word_shortcut_equals_the_grammar(word: str) -> None:
    found: list[Query | str] = []
    for text in (word, f" {word}"):  # the leading space avoids the shortcut
        try:
            found.append(parse(text, PLAIN))
        except QueryError as error:
            found.append(error.problem)
    assert found[0] == found[1]


# Characters and tokens with a meaning in the syntax, and similar ones.
SYNTAX_LETTERS = ' \n\t\u3000()[]{}"\\*~:-+<>=^|&.!aA0é東_'
letters = st.sampled_from(SYNTAX_LETTERS) | st.characters(exclude_categories=["Cs"])
pieces = st.sampled_from(
    ["AND", "OR", "NOT", "TO", "ANDx", "t:", "tags:", "year:", "*", "~1", '"', "\\"]
)
texts = st.lists(letters | pieces, max_size=6).map("".join)


@settings(max_examples=120)
@given(st.lists(texts | pieces, max_size=8).map(" ".join) | st.text())
def test_any_text_parses_or_raises_an_error_with_a_position(text: str) -> None:
    wrong: QueryError | None = None
    try:
        query = parse(text, ONE)
    except QueryError as error:
        wrong = error
    if wrong is None:
        assert parse(str(query), ONE) == query
    else:
        assert 0 <= wrong.position <= len(text)
        assert len(wrong.picture.split("\n")) == 2


def test_error_has_a_message_and_a_position() -> None:
    for text, error in (
        ("a OR", "a word is missing at the end\n  a OR\n      ^"),
        (
            "red || blue",
            "|| is written OR; write \\|| for the characters themselves\n  red || blue\n      ^^",
        ),
        ("red&&blue", "&& is written AND"),
        ("a !b", "! is written -, as in -b, or NOT; write \\! for the character itself"),
        ("tea^2", "boosting with ^ is not supported; write \\^ for the character itself"),
        (
            "a t?a",
            "the wildcard ? is not supported; use * at the end of a word; write \\? for the "
            "character",
        ),
        (
            "/tea/",
            "regular expressions between / are not supported; write \\/ for the character itself",
        ),
        ("a AND OR b", "a word is missing before OR\n  a AND OR b\n        ^^"),
        ("t:OR", "a word is missing before OR\n  t:OR\n    ^^"),
        ("t:", "a word is missing at the end\n  t:\n    ^"),
        ("(a", "a ) is missing\n  (a\n    ^"),
        ("東京 a)", "unmatched )\n  東京 a)\n        ^"),
        ("()", "a word is missing before )\n  ()\n   ^"),
        ('a "b', 'this " has no closing "; write \\" for the character itself'),
        ("*a", "* can only be at the end of a word"),
        ('"a b"~2', "a ~ can only be at the end"),
        ("a~2", "words can differ by one letter only: cat~1\n  a~2\n  ^^^"),
        ("a\\", "after \\ a character is missing"),
        ("y:[1 TO 2", "a range is written [1990 TO 2000]"),
        ("y:>)", "a range is written [1990 TO 2000]"),
        (
            "a\ud800",
            "the query has an unpaired surrogate",
        ),
    ):
        with pytest.raises(QueryError) as caught:
            parse(text, PARSED)
        assert str(caught.value).startswith(error), text


PARSED = Collection("parsed", (*ONE.fields, ValueField("y", 3, Kind.NUMBER)), "refused")


def test_hostile_texts_end_with_an_error() -> None:
    for text, error in (
        ("a " * 500_000, "the query has 1000000 characters; the maximum is 4096"),
        ("(" * LENGTH_MAX, "a word is missing at the end"),
        ("(" * 2000 + "a" + ")" * 2001, "unmatched )"),
        ("t:(" * 1000 + "a" + ")" * 1000, "nested more than 64 levels deep"),
        ("NOT " * 1000 + "a", "nested more than 64 levels deep"),
        ("(a (b OR " * 300 + "a" + "))" * 300, "nested more than 64 levels deep"),
        ('"' * LENGTH_MAX, "the query has more than 128 words"),
        ("ab~ " * 100 + "(", "a word is missing at the end"),
        ("ab* OR -(cd~) " * 9, "the query has more than 16 words with * or ~"),
        ("\\" * (LENGTH_MAX - 1), "after \\ a character is missing"),
    ):
        with pytest.raises(QueryError) as caught:
            parse(text, ONE)
        assert error in caught.value.problem
        assert len(str(caught.value)) < 400


def test_queries_at_the_limits_are_accepted() -> None:
    parse("NOT " * (DEPTH_MAX - 1) + "a", ONE)
    parse("a " * LEAVES_MAX, ONE)
    parse("a* " * EXPANDED_MAX, ONE)
    assert parse("a" * LENGTH_MAX, ONE).root == Term(0, "t", "a" * 255)
    assert parse("(" * 2000 + "a" + ")" * 2000, ONE).root == Term(0, "t", "a")


def test_query_that_does_not_fit_the_collection_is_rejected() -> None:
    for text, error in (
        (
            "a titel:(b)",
            "there is no field 'titel' (did you mean 'title'?); if it is not a field, write "
            "\\ before it\n  a titel:(b)\n    ^^^^^",
        ),
        ("source:x", "the field 'source' is only stored"),
        ("title:[a TO b]", "'title' is a text, and has no ranges"),
        ("a wi-fi*", "* is for one word, and these are several: wi fi"),
        ("tags:a~", "'tags' has keywords"),
        ("year:[1 TO b]", "'b' is not a number"),
        ("year:1*", "'year' is a number"),
        ("day:2020-02-30", "'2020-02-30' is not a date"),
        ("day:2020*", "'day' is a date"),
        ("NOT (... OR !)", "the query contains no word"),
    ):
        with pytest.raises(QueryError) as caught:
            parse(text, ARTICLES)
        assert str(caught.value).startswith(error), text
