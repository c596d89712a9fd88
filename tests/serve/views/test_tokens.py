"""Tokens sort in the order of times; any other text is rejected."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.labels import INFINITY
from driftline.serve.errors import BadToken
from driftline.serve.views.tokens import time_of, token_of

LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
times = st.integers(0, INFINITY) | st.sampled_from([0, 1, INFINITY - 1, INFINITY])


@given(times, times)
def test_tokens_sort_in_the_order_of_times(one: int, other: int) -> None:
    assert (token_of(one) < token_of(other)) == (one < other)
    assert len(token_of(one)) == len(token_of(other))
    assert re.fullmatch(f"[{LETTERS}]{{14}}", token_of(one))
    assert time_of(token_of(one)) == one


@given(times)
def test_wrong_letter_or_swapped_letters_make_a_token_invalid(time: int) -> None:
    token = token_of(time)
    others = {token[:i] + letter + token[i + 1 :] for i in range(14) for letter in LETTERS}
    for i in range(14):
        for j in range(i):
            letters = list(token)
            letters[i], letters[j] = letters[j], letters[i]
            others.add("".join(letters))
    for other in others - {token}:
        with pytest.raises(BadToken):
            time_of(other)


BAD = ["", "0", "0" * 13, "0" * 15, "-" * 14, "O" * 14, "é" * 14, "x" * 99]


@pytest.mark.parametrize("text", BAD)
def test_malformed_tokens_are_rejected(text: str) -> None:
    with pytest.raises(BadToken, match=r"is not a label, .* A label is a text of 14 letters"):
        time_of(text)


def test_token_encoding_is_stable() -> None:
    assert token_of(1_790_000_000_000_000) == "001jvzvd2br00c"
