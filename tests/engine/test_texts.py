"""Texts for people: untrusted text cannot control a terminal, and exception texts are stable."""

from __future__ import annotations

import json
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.texts import complain, raised, reason_of, visible, visible_json, visible_lines

STEERING = [
    *(chr(code) for code in [*range(9), *range(11, 32), *range(127, 160)]),
    *"\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
]


def test_what_steers_a_terminal_is_an_escape() -> None:
    for character in STEERING:
        escape = ascii(character).strip("'")
        for shown in (visible, visible_lines):
            assert shown(f"a\t{character}b") == f"a\t{escape}b"
        whole = visible_json(json.dumps(character, ensure_ascii=False))
        assert whole.isascii()
        assert whole.isprintable()
        assert json.loads(whole) == character


def test_letters_of_any_language_stay() -> None:
    text = "नमस्ते café שלום \U0001f469\u200d\U0001f4bb C:\\new"
    assert visible(text) == visible_lines(text) == text


def test_line_ends_of_others_are_escapes_and_ours_are_indented() -> None:
    assert visible("a\n12:00:00 b") == r"a\n12:00:00 b"
    assert visible_lines("a\n12:00 b\n c\n  d\n\te\n") == "a\n  12:00 b\n   c\n  d\n  \te\n  "


@given(st.text())
def test_only_the_first_line_begins_at_the_left(text: str) -> None:
    first, *others = visible_lines(text).split("\n")
    assert first.splitlines() in ([], [first])
    assert all(line.startswith("  ") and line.splitlines() == [line] for line in others)
    assert len(visible(text).splitlines()) <= 1
    assert json.loads(visible_json(json.dumps(text, ensure_ascii=False))) == text


def test_the_error_of_a_command_is_one_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    complain("it failed\n  at: f.py\ndriftline: forged\x1b]0;title\x07")
    assert capsys.readouterr().err == (
        "driftline: it failed\n  at: f.py\n  driftline: forged\\x1b]0;title\\x07\n"
    )


class Mute(Exception):
    def __str__(self) -> NoReturn:
        raise KeyError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (KeyError("a"), "KeyError: 'a'"),
        (Mute(), "Mute: making its text raises KeyError"),
        (RecursionError("at depth 77"), "RecursionError: maximum recursion depth exceeded"),
        (ValueError("<a at 0x7f00>"), "ValueError: <a>"),
    ],
)
def test_an_exception_has_the_same_words_everywhere(error: Exception, text: str) -> None:
    assert raised(error) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(2, "No such file", "a.txt"), "a.txt: No such file"),
        (OSError(28, "No space left"), "the system: No space left"),
        (OSError("the database is gone"), "the database is gone"),
        (ConnectionError(), "ConnectionError"),
    ],
)
def test_an_error_of_the_system_says_why(error: OSError, text: str) -> None:
    assert reason_of(error) == text
