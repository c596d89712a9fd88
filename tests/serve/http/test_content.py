"""What requests and answers contain: wrong JSON, and answers whose client leaves."""

from __future__ import annotations

import asyncio
import re

import pytest
from starlette.types import Message

from driftline.serve.errors import ApiError
from driftline.serve.http.content import WATCH_AFTER_S, loads, while_connected


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'\xef\xbb\xbf{"a": 1}', "it begins with a byte-order mark; send UTF-8 without one"),
        (b"9" * 5000, "an integer has too many digits: send it as a string"),
        (b'{"a": \xff}', "byte 6 is not UTF-8"),
        (b"[" * 100_000, "this is not valid JSON: it is nested too deep"),
        (b'{"a": 1, "a": 2}', "this is not valid JSON: the name 'a' is there twice"),
        (b"[NaN]", "this is not valid JSON: NaN is not a number of JSON"),
        (b"{", "this is not valid JSON: "),
        (b"{} {}", "a second value follows the first; in a bulk request each has its own line"),
        (b" ", "this is not valid JSON: it is empty"),
    ],
)
def test_unreadable_json_is_rejected_with_a_message(data: bytes, said: str) -> None:
    with pytest.raises(ApiError, match=re.escape(said)) as refused:
        loads(data)
    assert refused.value.code == "invalid"
    assert "sys." not in str(refused.value)


async def stays() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def test_finished_answer_leaves_no_task_behind() -> None:
    assert await while_connected(stays, asyncio.sleep(2 * WATCH_AFTER_S, "answer")) == "answer"
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
