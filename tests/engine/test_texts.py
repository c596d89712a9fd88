"""Texts for users: untrusted text cannot control a terminal, and exception texts are stable."""

from __future__ import annotations

import json
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.texts import (
    describe_exception,
    escape_controls,
    escape_json,
    escape_lines,
    print_error,
    reason_of,
)

STEERING = [
    *(chr(code) for code in [*range(9), *range(11, 32), *range(127, 160)]),
    *"\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
]


def test_terminal_control_characters_are_escaped() -> None:
    for character in STEERING:
        escape = ascii(character).strip("'")
        for shown in (escape_controls, escape_lines):
            assert shown(f"a\t{character}b") == f"a\t{escape}b"
        whole = escape_json(json.dumps(character, ensure_ascii=False))
        assert whole.isascii()
        assert whole.isprintable()
        assert json.loads(whole) == character


def test_line_ends_are_escaped_in_values_and_indented_in_messages() -> None:
    assert escape_controls("a\n12:00:00 b") == r"a\n12:00:00 b"
    assert escape_lines("a\n12:00 b\n c\n  d\n\te\n") == "a\n  12:00 b\n   c\n  d\n  \te\n  "


@given(st.text())
def test_continuation_lines_are_indented(text: str) -> None:
    first, *others = escape_lines(text).split("\n")
    assert first.splitlines() in ([], [first])
    assert all(line.startswith("  ") and line.splitlines() == [line] for line in others)
    assert len(escape_controls(text).splitlines()) <= 1
    assert json.loads(escape_json(json.dumps(text, ensure_ascii=False))) == text


def test_the_error_of_a_command_is_one_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("it failed\n  at: f.py\ndriftline: forged\x1b]0;title\x07")
    assert capsys.readouterr().err == (
        "Error: it failed\n  at: f.py\n  driftline: forged\\x1b]0;title\\x07\n"
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
def test_exception_text_is_the_same_in_every_process(error: Exception, text: str) -> None:
    assert describe_exception(error) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(2, "No such file", "a.txt"), "a.txt: No such file"),
        (OSError(28, "No space left"), "the system: No space left"),
        (OSError("the database is gone"), "the database is gone"),
        (ConnectionError(), "ConnectionError"),
    ],
)
def test_os_error_text_names_the_reason(error: OSError, text: str) -> None:
    assert reason_of(error) == text
