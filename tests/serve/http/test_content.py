"""What requests and answers contain: wrong JSON, and answers whose client leaves."""

from __future__ import annotations

import asyncio
import re

import pytest
from starlette.types import Message

from driftline.serve.errors import Refused
from driftline.serve.http.content import WATCH_AFTER_S, ClientLeft, loads, while_connected


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


class Answer:
    """An answer that takes long, as one that waits for a time, and tidies up behind it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.tidied = False

    async def __call__(self) -> int:
        self.begun.set()
        try:
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.tidied = True
        return 1


async def leaves() -> Message:
    return {"type": "http.disconnect"}


async def stays() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


def test_an_answer_is_cancelled_when_its_client_leaves_and_its_task_goes_on() -> None:
    async def drive() -> None:
        answer = Answer()
        with pytest.raises(ClientLeft):
            await while_connected(leaves, answer())
        assert answer.tidied
        async with asyncio.timeout(60):  # which looks whether its task is being cancelled
            await asyncio.sleep(0)

    asyncio.run(drive())


def test_an_answer_that_is_there_leaves_nothing_behind() -> None:
    async def drive() -> None:
        assert await while_connected(stays, asyncio.sleep(2 * WATCH_AFTER_S, "answer")) == "answer"
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(drive())


def test_the_end_of_the_service_is_not_taken_for_a_client_that_leaves() -> None:
    async def drive() -> None:
        answer = Answer()
        task = asyncio.create_task(while_connected(stays, answer()))
        await answer.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert answer.tidied

    asyncio.run(drive())
