"""MediaWiki markup: the cleaned text, and a bound on the run time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.sources.wikitext import clean, sections


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("'''Кот''' — ''это'' '''''зверь'''''.", "Кот — это зверь."),
        ("a {{one|{{two|x}}|{{{3|}}}}} b", "a b"),
        ("{{{{{1}}}}} x {{{p|{{q}}}}} y", "x y"),
        ("a\n{| class=x\n! h\n|-\n| {{t|}} || b\n{|\n|inner\n|}\n|}\nb", "a\nb"),
        ("{{Infobox\n|a=1\n|}}\ntext", "text"),
        ("{|\n{{\n|}\nopen }} text", "open text"),
        ("a {{ never closed [[b]]", "a never closed b"),
        ("a }} b ]] c |} d", "a b c |} d"),
        ('x<ref name="a">{{cite|y}}</ref>y<ref name=a />z', "xyz"),
        ("<ref>never closed", "never closed"),
        ("a<!-- {{ -->b<!-- never closed", "ab"),
        ("<math>x^2</math>a<gallery>\nFile:x.jpg\n</gallery>", "a"),
        ("[[cat]]s [[Felis|the cat]] [[:Файл:x.png|here]] [[#part]]", "cats the cat here part"),
        ("[[2001: A Space Odyssey]] [[wikt:мир|мир]]", "2001: A Space Odyssey мир"),
        ("[[File:a.jpg|thumb|A [[cat]] in [[it|a box]]]] b", "b"),
        ("[[Файл:Кот 1.PNG|мини|Подпись]]текст", "текст"),
        ("a\n[[Категория:Кошки|Кот]]\n[[Category: X]][[Category:Y|k]]\n[[de:Katze]]", "a"),
        ("see [http://x.org the site], [https://y.org]", "see the site,"),
        ("H<sub>2</sub>O<br/>a<br>b &amp; &lt;c&gt;&nbsp;d", "H2O a b & <c> d"),
        ("* one\n** two\n# three\n; four\n: five\n----\n__NOTOC__", "one\ntwo\nthree\nfour\nfive"),
        ("1 < 2 and 3 > 2, it's", "1 < 2 and 3 > 2, it's"),
        ("&#" + "9" * 6000 + ";", "&#" + "9" * 6000 + ";"),
    ],
)
def test_clean_removes_markup_and_keeps_text(wikitext: str, text: str) -> None:
    assert clean(wikitext) == text


def test_sections_of_all_levels() -> None:
    text = "lead\n== A ==\na\n===B=== \nb\n====== C = D ======\n=E=\n==\n== F <!-- x -->==\n"
    assert list(sections(text)) == [
        ("", "lead"),
        ("A", "a"),
        ("B", "b"),
        ("C = D", "=E=\n=="),
        ("F", ""),
    ]
    assert list(sections("")) == [("", "")]
    assert list(sections("a <!--\n== no ==\n--> b")) == [("", "a  b")]


PIECES = ["{{", "}}", "{|\n", "\n|}", "[[", "]]", "[[a|", "{{{", "<ref", "<ref>", "<ref></ref>"]
PIECES += ["<!--", "-->", "[http:a", "[http://a ", "=", "== ", "\n==", "'", "__a", "_", "&#9", "&"]
PIECES += ["<a ", "<", "[[File:a|", "{{a|[[b]] {|\n", " \t", "\n  ", "[[:a]]", "x", "* ", "|", "-"]


def test_pathological_markup_is_cleaned_in_linear_time() -> None:
    """A quadratic pass over 100 kB would take minutes; all pieces together take a few seconds."""
    begin = time.perf_counter()
    for piece in PIECES:
        text = piece * (100_000 // len(piece))
        clean(text + "]" * 1000 + "}" * 1000)
        list(sections(text))
    assert time.perf_counter() - begin < 10


@given(st.lists(st.sampled_from([*PIECES, "\n", "ж", " ", "|}", "|thumb|", ":"])).map("".join))
def test_any_markup_is_cleaned_to_tidy_lines(text: str) -> None:
    for _, body in sections(text):
        lines = clean(body).split("\n")
        assert lines == [""] or all(line and line == " ".join(line.split()) for line in lines)
