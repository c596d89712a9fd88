"""Runtime in an asyncio loop: what wakes it, and that it yields to other tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator

import pytest
import uvloop
import zmq

from driftline.deploy.runtime.loop import asyncio_driver as module
from driftline.deploy.runtime.loop.asyncio_driver import AsyncioDriver
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.sockets.inbox import MESSAGES_PER_TURN_MAX
from driftline.engine.wire.messages import AskPromise, encode
from driftline.engine.wire.role import IOJob, Role
from tests.deploy.runtime.loop.test_runtime import RecordingRole

WITHIN_S = 20.0


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """Provide a runtime that takes turns only if something wakes it."""
    monkeypatch.setattr(module, "TURN_INTERVAL_S_MAX", 600.0)
    runtime = Runtime(lambda job: f"did {job}")
    yield runtime
    runtime.close(linger_ms=0)


@pytest.fixture
def sender() -> Iterator[zmq.Socket[bytes]]:
    """Provide a socket that stands for another process."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.linger = 0
        yield socket


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(WITHIN_S):
            await test()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


def messages(count: int) -> list[bytes]:
    return [encode(("front-0", 0, 1 + number), AskPromise(number)) for number in range(count)]


def test_messages_wake_the_driver_until_all_are_handled(
    runtime: Runtime, sender: zmq.Socket[bytes]
) -> None:
    listener = RecordingRole("node-0")
    sender.connect(runtime.add(listener, "tcp://127.0.0.1:*"))
    count = 3 * MESSAGES_PER_TURN_MAX + 1

    async def test() -> None:
        driver = AsyncioDriver(runtime, lambda: len(listener.received) == count or None)
        result = asyncio.create_task(driver.result())
        await asyncio.sleep(0.05)  # the runtime is idle
        for data in messages(count):
            sender.send(data)
        assert await result is True

    run(test)
    assert [message for _, message in listener.received] == [AskPromise(n) for n in range(count)]


def test_finished_job_and_turn_request_wake_the_driver(runtime: Runtime) -> None:
    listener = RecordingRole("node-0")
    runtime.add(listener, "inproc://node-0")

    async def test() -> None:
        driver = AsyncioDriver(runtime, lambda: listener.results or None)
        result = asyncio.create_task(driver.result())
        await asyncio.sleep(0.05)
        listener.jobs.append(IOJob())
        driver.schedule_turn()
        assert await result == ["did IOJob()"]

    run(test)


def test_driver_does_not_poll_a_socket_without_room(
    runtime: Runtime, sender: zmq.Socket[bytes]
) -> None:
    """The role's clients have sent more messages than it has room for."""
    party, taken, has_room = RecordingRole("intake"), list[bytes](), [False]
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        address = f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"
        runtime.add(RecordingRole("node-0"), "inproc://node-0")
        runtime.add_with_input(
            party, socket, lambda: taken.append(socket.recv()), has_room=lambda: has_room[0]
        )
        sender.connect(address)

        async def test() -> None:
            driver = AsyncioDriver(runtime, lambda: len(taken) == 3 or None)
            result = asyncio.create_task(driver.result())
            for data in (b"1", b"2", b"3"):
                sender.send(data)
            await asyncio.sleep(0)
            turns = runtime.turns
            await asyncio.sleep(0.3)  # the messages arrive meanwhile
            assert runtime.turns - turns <= 2
            assert not taken
            has_room[0] = True
            driver.schedule_turn()
            assert await result is True

        run(test)
    assert taken == [b"1", b"2", b"3"]


def test_role_error_ends_the_driver_and_busy_role_yields_to_other_tasks(runtime: Runtime) -> None:
    others: list[int] = []

    class BusyRole(Role):
        def turn(self) -> bool:
            if len(others) > 10:
                raise RuntimeError("it is broken")
            return True

    runtime.add(BusyRole("node-0"), "inproc://node-0")

    async def test() -> None:
        async def other() -> None:
            while True:
                others.append(1)
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        with pytest.raises(RuntimeError, match="it is broken"):
            await AsyncioDriver(runtime, lambda: None).result()
        turns = runtime.turns
        await asyncio.sleep(0.01)
        assert runtime.turns == turns
        beside.cancel()

    run(test)
