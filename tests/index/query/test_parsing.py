"""Texts of queries: what they mean, why they are refused, and that they can be written again."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from driftline.index.query.errors import Place, QueryError
from driftline.index.query.parsing import (
    DEPTH_MAX,
    LEAVES_MAX,
    LENGTH_MAX,
    parse,
)
from driftline.index.query.syntax import (
    All,
    And,
    Fuzzy,
    In,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Query,
    Range,
    Words,
)
from tests.index.query.trees import any_trees, pieces, texts

A, B, C = Words("a"), Words("b"), Words("c")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", All()),
        (" \n", All()),
        ("*", All()),
        ("a b", And((A, B))),
        ("a AND b c", And((A, B, C))),
        ("a OR b c", Or((A, And((B, C))))),
        ("a and b", And((A, Words("and"), B))),
        ("(a OR b) c", And((Or((A, B)), C))),
        ("a(b)c", And((A, B, C))),
        ("((a))", A),
        ("-a NOT b", And((Not(A), Not(B)))),
        ("NOT = -= NOT -", And((Not(Words("=")), Words("-="), Not(Words("-"))))),
        ("NOT (a b)", Not(And((A, B)))),
        ("NOT NOT a", Not(Not(A))),
        ("+a -(b OR c)", And((A, Not(Or((B, C)))))),
        ("a-b a+b", And((Words("a-b"), Words("a+b")))),
        ("a - b -> --c", And((A, Words("-"), B, Words("->"), Words("--c")))),
        ('"a b"', Phrase("a b")),
        ('"a b"~2 c', And((Phrase("a b", 2), C))),
        (r'"a \" \\"', Phrase('a " \\')),
        ("a* b~ c~1", And((Prefix("a"), Fuzzy("b"), Fuzzy("c")))),
        ("t:a b", And((In("t", A), B))),
        ("t: a", In("t", A)),
        ("t.x-y:a:b", In("t.x-y", Words("a:b"))),
        ("-t:-a", Not(In("t", Words("-a")))),
        ('t:(a OR -b) "c"', And((In("t", Or((A, Not(B)))), Phrase("c")))),
        ("t:(a u:b)", In("t", And((A, In("u", B))))),
        ("t:*", In("t", All())),
        ("10:30 C++ [x] a=b <i>", And(tuple(map(Words, ("10:30", "C++", "[x]", "a=b", "<i>"))))),
        ("y:[1 TO 2]", In("y", Range("1", "2"))),
        ("y:{1 TO 2]", In("y", Range("1", "2", False, True))),
        ("y:[ 1 TO * }", In("y", Range("1", None, True, True))),
        ("y:[* TO *]", In("y", Range(None, None))),
        ("y:[TO TO TO]", In("y", Range("TO", "TO"))),
        ('y:["1 2" TO "*"]', In("y", Range("1 2", "*"))),
        ("y:>=-1 y:<2", And((In("y", Range("-1", None)), In("y", Range(None, "2", True, False))))),
        ("y:>1 TO", And((In("y", Range("1", None, False, True)), Words("TO")))),
        ('y:>"=5"', In("y", Range("=5", None, False, True))),
        ("(y:<=1)", In("y", Range(None, "1"))),
        (r"\AND \-a \* a\ b t\:a", And(tuple(map(Words, ("AND", "-a", "*", "a b", "t:a"))))),
        ("ANDROID NOTA OR ORB", Or((And((Words("ANDROID"), Words("NOTA"))), Words("ORB")))),
    ],
)
def test_what_a_text_means(text: str, tree: Node) -> None:
    assert parse(text) == Query(tree)
    assert parse(str(Query(tree))) == Query(tree)


@settings(max_examples=500)
@given(st.text("ab_3é", max_size=4) | st.sampled_from(["AND", "OR", "NOT", "ANDY", "TO"]))
def test_a_word_alone_is_understood_as_it_is_among_others(word: str) -> None:
    try:
        found = parse(word).root
    except QueryError:
        found = None
    try:
        spaced = parse(f" {word}").root  # which goes through the grammar
    except QueryError:
        spaced = None
    assert found == spaced
    if found is not None and word:
        assert found.place == Place(0, len(word))


@given(any_trees)
def test_every_tree_can_be_written_and_read_again(tree: Node) -> None:
    text = str(Query(tree))
    assume(len(text) <= LENGTH_MAX)
    assert parse(text) == Query(tree)
    assert parse(str(Query(tree))) == Query(tree)


@settings(max_examples=500)
@given(st.lists(texts | pieces, max_size=8).map(" ".join) | st.text())
def test_any_text_is_a_query_or_an_error_with_a_place(text: str) -> None:
    wrong: QueryError | None = None
    try:
        query = parse(text)
    except QueryError as error:
        wrong = error
    if wrong is None:
        assert query.text == text
        assert parse(str(query)) == query
    else:
        assert 0 <= wrong.position <= len(text)
        assert len(wrong.picture.split("\n")) == 2


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a OR", "a word is missing at the end, at character 5\n  a OR\n      ^"),
        (
            "red || blue",
            "|| is written OR; write \\|| for the characters themselves, at character 5\n"
            "  red || blue\n      ^^",
        ),
        ("red||blue", "|| is written OR"),
        ("red&&blue", "&& is written AND"),
        (
            "a !b",
            "! is written -, as -b, or NOT; write \\! for the character itself, at character 3\n"
            "  a !b\n    ^^",
        ),
        (
            "tea^2",
            "no word counts more than others by ^; write \\^ for the character itself, at "
            "character 1\n  tea^2\n  ^^^^^",
        ),
        (
            "a t?a",
            "? stands for no letter, as * does at the end; write \\? for the character itself, at "
            "character 3\n  a t?a\n    ^^^",
        ),
        (
            "/tea/",
            "there are no patterns between /; write \\/ for the character itself, at character 1\n"
            "  /tea/\n  ^^^^^",
        ),
        ("OR a", "a word is missing before OR, at character 1\n  OR a\n  ^^"),
        ("a AND OR b", "a word is missing before OR, at character 7\n  a AND OR b\n        ^^"),
        ("t:OR", "a word is missing before OR, at character 3\n  t:OR\n    ^^"),
        ("a NOT", "a word is missing at the end, at character 6\n  a NOT\n       ^"),
        ("t:", "a word is missing at the end, at character 3\n  t:\n    ^"),
        ("(a", "a ) is missing, at character 3\n  (a\n    ^"),
        ("東京 a)", "there is no ( for this ), at character 5\n  東京 a)\n        ^"),
        ("()", "a word is missing before ), at character 2\n  ()\n   ^"),
        ('a "b', 'this " has no other one; write \\" for the character itself, at character 3'),
        ("a*b", "* can only be at the end of a word"),
        ("*a", "* can only be at the end of a word"),
        ("a~b", "a ~ can only be at the end"),
        ('"a"~b', "a ~ can only be at the end"),
        ('"a"~2b', "a ~ can only be at the end"),
        ("~", "a ~ can only be at the end"),
        ("a~2", "words can differ by one letter only: cat~1, at character 1\n  a~2\n  ^^^"),
        ('"a b"~101', "a phrase can have ~100 at most"),
        (f'"a b"~{"9" * 4000}', "a phrase can have ~100 at most"),
        ("a\\", "after \\ a character is missing"),
        ("y:[1 2]", "a range is written [1990 TO 2000]"),
        ("y:[1 TO 2", "a range is written [1990 TO 2000]"),
        ("y:>", "a range is written [1990 TO 2000]"),
        ("y:>)", "a range is written [1990 TO 2000]"),
        ("a\ud800", "the query is not Unicode: here is half a character, at character 2"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(text: str, error: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert str(caught.value).startswith(error)


def test_a_picture_of_a_long_query_shows_what_is_near() -> None:
    text = "\t".join(["word"] * 100) + " )"
    with pytest.raises(QueryError) as caught:
        parse(text)
    query, marks = caught.value.picture.split("\n")
    assert query[marks.index("^")] == ")"
    assert len(query) < 80
    assert "\t" not in query


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("(" * 10_000, "the query has 10000 characters; the most is 4096"),
        ("a " * 500_000, "the query has 1000000 characters"),
        ("(" * LENGTH_MAX, "a word is missing at the end"),
        ("(" * 2000 + "a" + ")" * 2001, "there is no ( for this )"),
        ("t:(" * 1000 + "a" + ")" * 1000, "nested more than 64 deep"),
        ("NOT " * 1000 + "a", "nested more than 64 deep"),
        ("-(" * 1000 + "a" + ")" * 1000, "nested more than 64 deep"),
        ("(a (b OR " * 300 + "a" + "))" * 300, "nested more than 64 deep"),
        ("a " * (LEAVES_MAX + 1), "the query has more than 128 words"),
        ('"' * LENGTH_MAX, "the query has more than 128 words"),
        ("\\" * (LENGTH_MAX - 1), "after \\ a character is missing"),
        ("~" * LENGTH_MAX, "a ~ can only be"),
    ],
)
def test_hostile_texts_end_with_an_error(text: str, error: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert error in caught.value.problem
    assert len(str(caught.value)) < 400


def test_the_limits_themselves_are_kept() -> None:
    parse("NOT " * (DEPTH_MAX - 1) + "a")
    parse("a " * LEAVES_MAX)
    assert parse("a" * LENGTH_MAX).root == Words("a" * LENGTH_MAX)
    deep = "(" * 2000 + "a" + ")" * 2000
    assert parse(deep) == Query(A)


def test_a_node_knows_its_place() -> None:
    text = 'a OR -t:(b "c d"~2) y:[1 TO 2] z:>=5'
    found = {}
    waiting: list[Node] = [parse(text).root]
    for node in waiting:
        found[type(node).__name__, text[slice(*node.place)]] = node.place
        match node:
            case And() | Or():
                waiting += node.parts
            case Not() | In():
                waiting.append(node.part)
    assert list(found) == [
        ("Or", text),
        ("Words", "a"),
        ("And", text[5:]),
        ("Not", text[5:18]),
        ("In", "y:[1 TO 2]"),
        ("In", "z:>=5"),
        ("In", text[6:18]),
        ("Range", "[1 TO 2]"),
        ("Range", ">=5"),
        ("And", 'b "c d"~2'),
        ("Words", "b"),
        ("Phrase", '"c d"~2'),
    ]
    assert Words("a", place=Place(1, 2)) == A


@pytest.mark.parametrize("text", ["tea^2", "t?a", "/tea/", "!b", "||", "&&", "a^b?c/d"])
def test_words_with_characters_of_other_languages_can_be_written(text: str) -> None:
    query = Words(text, place=Place(0, 0))
    assert parse(str(query)).root == query


def test_what_means_nothing_in_other_languages_need_not_be_marked() -> None:
    assert str(parse("tea? and/or /tmp x^y")) == "tea? and/or \\/tmp x\\^y"
