"""The words for exceptions: never None, never an exception of their own."""

from typing import NoReturn

import pytest

from driftline.engine.raised import raised, reason_of


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
