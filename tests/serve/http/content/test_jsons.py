"""What is no JSON is told in words of ours."""

from __future__ import annotations

import re

import pytest

from driftline.serve.errors import Refused
from driftline.serve.http.content.jsons import loads


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'\xef\xbb\xbf{"a": 1}', "it begins with a byte-order mark; send UTF-8 without one"),
        (b"9" * 5000, "an integer has thousands of digits, which is more than can be read"),
        (b'{"a": \xff}', "byte 6 is not UTF-8"),
        (b"[" * 100_000, "this is no JSON: it is nested too deep"),
        (b'{"a": 1, "a": 2}', "this is no JSON: the name 'a' is there twice"),
        (b"[NaN]", "this is no JSON: NaN is no number of JSON"),
        (b"{", "this is no JSON: "),
        (b"{} {}", "behind a value there is another one, which in a bulk has a line of its own"),
        (b" ", "this is no JSON: it is empty"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(data: bytes, said: str) -> None:
    with pytest.raises(Refused, match=re.escape(said)) as refused:
        loads(data)
    assert refused.value.code == "invalid"
    assert "sys." not in str(refused.value)
