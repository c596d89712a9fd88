"""IpcServer between the processes of a service: what is said comes whole, in order, and once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from select import select
from tempfile import TemporaryDirectory

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.errors import MalformedMessage
from driftline.serve.hosting.ipc import BYTES_MAX, Frames, IpcClient, IpcServer, Route, framed

WITHIN_S = 10.0

LARGE = b"x" * (5 << 20)
"""More than the kernel has room for, on any line."""


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 50), min_size=1))
def test_messages_come_whole_and_in_order_however_they_are_cut(
    messages: list[bytes], sizes: list[int]
) -> None:
    data = b"".join(map(framed, messages))
    frames, at = Frames(), 0
    found: list[bytes] = []
    while at < len(data):
        size = sizes[len(found) % len(sizes)]
        frames.add(data[at : at + size])
        at += size
        while (message := frames.next()) is not None:
            found.append(message)
    assert found == messages


def test_message_length_above_the_maximum_is_rejected() -> None:
    frames = Frames()
    frames.add((BYTES_MAX + 1).to_bytes(4))
    with pytest.raises(MalformedMessage):
        frames.next()


class End:
    """One end of lines, which notes what it is told."""

    def __init__(self) -> None:
        self.lost: list[Route] = []
        self.ipc = IpcServer(self.lost.append)
        self.came: list[tuple[Route, bytes]] = []

    def take(self) -> None:
        """Take what has come."""
        while (came := self.ipc.next()) is not None:
            self.came.append(came)


@contextmanager
def ends(count: int) -> Iterator[tuple[str, list[End]]]:
    """The first one listens, at the path."""
    made = [End() for _ in range(count)]
    with TemporaryDirectory() as directory:
        path = f"{directory}/line"
        made[0].ipc.listen(path)
        yield path, made
    for each in made:
        each.ipc.close()


def until(done: bool, *some: End) -> bool:
    """Let all take what comes, unless it is done; whether it is not."""
    if not done:
        files = [each.ipc.fileno() for each in some]
        assert select(files, [], [], WITHIN_S)[0], "nothing comes"
        for each in some:
            each.take()
    return not done


def called(end: End, path: str) -> Route:
    route = end.ipc.connect(path)
    assert route is not None
    return route


def test_large_messages_in_both_directions_do_not_deadlock() -> None:
    with ends(2) as (path, (server, client)):
        route = called(client, path)
        client.ipc.send(route, b"first")
        while until(bool(server.came), server):
            pass
        back, _ = server.came.pop()
        sent = [LARGE, b"", b"small", LARGE]
        for data in sent:
            client.ipc.send(route, data)
            server.ipc.send(back, data)
        while until(len(server.came) == len(client.came) == len(sent), server, client):
            pass
        assert server.came == [(back, data) for data in sent]
        assert client.came == [(route, data) for data in sent]
        assert not select([server.ipc, client.ipc], [], [], 0)[0], "neither waits for anything"


def test_connections_are_isolated_and_disconnects_are_reported() -> None:
    with ends(3) as (path, (server, *clients)):
        routes = [called(each, path) for each in clients]
        for n, (client, route) in enumerate(zip(clients, routes, strict=True)):
            for k in range(20):
                client.ipc.send(route, f"{n} {k}".encode())
        while until(len(server.came) == 40, server):
            pass
        for n in range(2):
            mine = [each for each in server.came if each[1].startswith(f"{n} ".encode())]
            assert [data for _, data in mine] == [f"{n} {k}".encode() for k in range(20)]
            assert len({route for route, _ in mine}) == 1
        gone = server.came[0][0] if server.came[0][1].startswith(b"0") else server.came[-1][0]
        clients[0].ipc.close()
        while until(bool(server.lost), server):
            pass
        assert server.lost == [gone]
        server.ipc.send(gone, b"nobody hears it")


def test_malformed_data_closes_only_its_own_connection() -> None:
    with ends(3) as (path, (server, bad, good)):
        route = called(bad, path)
        bad.ipc._connections[route].socket.sendall(b"\xff" * 100)
        good.ipc.send(called(good, path), b"sense")
        while until(bool(server.came and server.lost and bad.lost), server, bad):
            pass
        assert [data for _, data in server.came] == [b"sense"]


def test_ipc_client_reconnects_after_each_disconnect() -> None:
    """A process dies, and another one listens at its path; the first is called before it does."""

    async def live(directory: str) -> None:
        path, came = f"{directory}/line", asyncio.Queue[bytes]()
        line = IpcClient(path, came.put_nowait, lambda: line.send(b"hello"))
        for number in range(3):
            server = End()
            server.ipc.listen(path)
            async with asyncio.timeout(WITHIN_S):
                while not server.came:
                    await asyncio.sleep(0.001)
                    server.take()
            route, hello = server.came[0]
            assert hello == b"hello"
            data = b"%d" % number * (1 << 20)
            server.ipc.send(route, data)
            async with asyncio.timeout(WITHIN_S):
                while came.empty():
                    await asyncio.sleep(0.001)
                    server.take()
            assert came.get_nowait() == data
            server.ipc.close()
        line.close()
        line.send(b"nobody hears it")
        async with asyncio.timeout(WITHIN_S):
            while len(asyncio.all_tasks()) > 1:  # nobody is left who could call
                await asyncio.sleep(0)

    with TemporaryDirectory() as directory, asyncio.Runner(loop_factory=uvloop.new_event_loop) as r:
        r.run(live(directory))
