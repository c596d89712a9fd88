"""A client that leaves: what it waits for is cancelled, wherever that is, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from driftline.serve.gateway.heads import Connection
from driftline.serve.http.content.streams import ClientLeft, while_there


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


def test_the_answer_is_cancelled_and_its_task_goes_on() -> None:
    async def drive() -> None:
        connection, answer = Connection(lambda: None), Answer()

        async def asked() -> str:
            with pytest.raises(ClientLeft):
                await while_there(connection, answer)
            async with asyncio.timeout(60):  # which looks whether its task is being cancelled
                await asyncio.sleep(0)
            return "went on"

        task = asyncio.create_task(asked())
        await answer.begun.wait()
        connection.lose()
        assert await task == "went on"
        assert answer.tidied

    asyncio.run(drive())


def test_nothing_is_begun_for_who_has_left_before() -> None:
    async def drive() -> None:
        connection, answer = Connection(lambda: None), Answer()
        connection.lose()
        with pytest.raises(ClientLeft):
            await while_there(connection, answer)
        assert not answer.begun.is_set()

    asyncio.run(drive())


def test_an_answer_that_is_there_is_not_cancelled_later() -> None:
    async def drive() -> None:
        connection = Connection(lambda: None)

        async def at_once() -> int:
            return 1

        assert await while_there(connection, at_once) == 1
        connection.lose()
        await asyncio.sleep(0)

    asyncio.run(drive())


def test_the_end_of_the_service_is_not_taken_for_a_client_that_leaves() -> None:
    async def drive() -> None:
        answer = Answer()
        task = asyncio.create_task(while_there(Connection(lambda: None), answer))
        await answer.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert answer.tidied

    asyncio.run(drive())
