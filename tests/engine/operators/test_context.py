"""Failures keep the complete element; messages for users are short, and mark truncation."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from driftline.engine.operators.context import RECORD_SHOWN, Failure, describe_failure, format_short
from driftline.engine.texts import ERROR_CHARS_MAX
from driftline.engine.wire.codec import RECORD_BYTES_MAX, pack_rows, round_trip, why_invalid_record


def failure(record: object, key: object = None, error: Exception | None = None) -> Failure:
    return Failure.from_exception("op", key, record, error or ValueError("bad"))


def test_failure_keeps_a_copy_of_the_whole_record() -> None:
    record = {"id": 7, "text": "x" * 100_000, "tags": ["a", ("b", 1.0, True, None)]}
    found = failure(record)
    record["tags"] = "changed later"
    wanted = {"id": 7, "text": "x" * 100_000, "tags": ("a", ("b", 1.0, True, None))}
    assert found.record == wanted
    assert found.text == ""
    assert Failure.from_payload(found.payload()) == found


def test_failure_keeps_valid_records_and_shortens_larger_elements() -> None:
    size = RECORD_BYTES_MAX - len(pack_rows([{"text": "x" * 70_000}])) + 70_000
    for more in (0, 1):
        record = {"text": "x" * (size + more)}
        refused = why_invalid_record(record, len(pack_rows([record])))
        assert bool(refused) == bool(more)
        if not refused:
            assert failure(record).record == record
    found = failure("x" * (RECORD_BYTES_MAX + 100))
    assert found.record is None
    assert found.text == "'" + "x" * (RECORD_SHOWN - 1) + "… (16,777,318 characters)"


def test_long_texts_are_truncated_and_marked_with_their_length() -> None:
    assert format_short("x" * 198) == repr("x" * 198)
    assert format_short("x" * 5998) == "'" + "x" * 199 + "… (6,000 characters)"
    found = failure("r" * 5998, "k" * 998, ValueError("e" * 2988))
    text = describe_failure((50, 0), found.payload())
    assert f"key '{'k' * 199}… (1,000 characters): " in text
    assert f"record: '{'r' * 199}… (6,000 characters)" in text
    assert found.error == f"ValueError: {'e' * ERROR_CHARS_MAX}… (2,988 characters)"


class Payment(NamedTuple):
    account: str
    amount: int


def raised(function: Callable[[Any], object], value: object) -> str:
    """Return the error of a function applied to a value as it arrives over the wire."""
    try:
        function(round_trip(value))
    except Exception as error:
        return failure(value, error=error).error
    raise AssertionError("it raises")


@pytest.mark.parametrize(
    ("function", "value", "hint"),
    [
        (lambda p: p.account, Payment("a", 1), "a NamedTuple arrives as a plain tuple"),
        (lambda p: p["in"].account, {"in": Payment("a", 1)}, "arrives as a plain tuple"),
        (lambda p: p.append(1), [1], "a list arrives as a tuple: convert it with list(x)"),
        (lambda p: operator.setitem(p, 0, 1), [1], "a list arrives as a tuple"),
        (lambda p: p.most_common(), Counter("a"), "a subclass of dict arrives as a plain dict"),
    ],
)
def test_error_hints_that_encoding_has_removed_the_class_of_a_value(
    function: Callable[[Any], object], value: object, hint: str
) -> None:
    message = raised(function, value)
    assert hint in message
    assert message == raised(function, value), "the same in every replay"
