"""Messages between the processes of a service: they arrive whole, in order and once."""

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
from driftline.serve.hosting.ipc import BYTES_MAX, FrameDecoder, IpcClient, IpcServer, Route, framed

WITHIN_S = 10.0

LARGE = b"x" * (5 << 20)
"""Larger than any socket buffer of the kernel."""


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 50), min_size=1))
def test_frames_restore_messages_from_any_fragmentation(
    messages: list[bytes], sizes: list[int]
) -> None:
    data = b"".join(map(framed, messages))
    frames, at = FrameDecoder(), 0
    found: list[bytes] = []
    while at < len(data):
        size = sizes[len(found) % len(sizes)]
        frames.add(data[at : at + size])
        at += size
        while (message := frames.next()) is not None:
            found.append(message)
    assert found == messages


def test_message_length_above_the_maximum_is_rejected() -> None:
    frames = FrameDecoder()
    frames.add((BYTES_MAX + 1).to_bytes(4))
    with pytest.raises(MalformedMessage):
        frames.next()


class IpcPeer:
    """IpcServer that records received messages and lost connections."""

    def __init__(self) -> None:
        self.disconnected: list[Route] = []
        self.ipc = IpcServer(self.disconnected.append)
        self.received: list[tuple[Route, bytes]] = []

    def receive(self) -> None:
        """Receive all messages that have arrived."""
        while (message := self.ipc.next()) is not None:
            self.received.append(message)


@contextmanager
def open_peers(count: int) -> Iterator[tuple[str, list[IpcPeer]]]:
    """Yield a path and `count` peers, of which the first one listens at the path."""
    peers = [IpcPeer() for _ in range(count)]
    with TemporaryDirectory() as directory:
        path = f"{directory}/line"
        peers[0].ipc.listen(path)
        yield path, peers
    for peer in peers:
        peer.ipc.close()


def wait_unless(done: bool, *peers: IpcPeer) -> bool:
    """Unless `done`, wait for messages and receive them; return `not done`."""
    if not done:
        files = [each.ipc.fileno() for each in peers]
        assert select(files, [], [], WITHIN_S)[0], "no message arrived in time"
        for each in peers:
            each.receive()
    return not done


def connect(peer: IpcPeer, path: str) -> Route:
    route = peer.ipc.connect(path)
    assert route is not None
    return route


def test_large_messages_in_both_directions_do_not_deadlock() -> None:
    with open_peers(2) as (path, (server, client)):
        route = connect(client, path)
        client.ipc.send(route, b"first")
        while wait_unless(bool(server.received), server):
            pass
        back, _ = server.received.pop()
        sent = [LARGE, b"", b"small", LARGE]
        for data in sent:
            client.ipc.send(route, data)
            server.ipc.send(back, data)
        while wait_unless(
            len(server.received) == len(client.received) == len(sent), server, client
        ):
            pass
        assert server.received == [(back, data) for data in sent]
        assert client.received == [(route, data) for data in sent]
        assert not select([server.ipc, client.ipc], [], [], 0)[0], "a socket is still readable"


def test_connections_are_isolated_and_disconnects_are_reported() -> None:
    with open_peers(3) as (path, (server, *clients)):
        routes = [connect(each, path) for each in clients]
        for n, (client, route) in enumerate(zip(clients, routes, strict=True)):
            for k in range(20):
                client.ipc.send(route, f"{n} {k}".encode())
        while wait_unless(len(server.received) == 40, server):
            pass
        for n in range(2):
            from_client = [each for each in server.received if each[1].startswith(f"{n} ".encode())]
            assert [data for _, data in from_client] == [f"{n} {k}".encode() for k in range(20)]
            assert len({route for route, _ in from_client}) == 1
        lost_route = (
            server.received[0][0]
            if server.received[0][1].startswith(b"0")
            else server.received[-1][0]
        )
        clients[0].ipc.close()
        while wait_unless(bool(server.disconnected), server):
            pass
        assert server.disconnected == [lost_route]
        server.ipc.send(lost_route, b"lost")


def test_malformed_data_closes_only_its_own_connection() -> None:
    with open_peers(3) as (path, (server, bad, good)):
        route = connect(bad, path)
        bad.ipc._connections[route].socket.sendall(b"\xff" * 100)
        good.ipc.send(connect(good, path), b"sense")
        while wait_unless(
            bool(server.received and server.disconnected and bad.disconnected), server, bad
        ):
            pass
        assert [data for _, data in server.received] == [b"sense"]


def test_ipc_client_reconnects_after_each_disconnect() -> None:
    """Restart the server three times; the client connects before the first server listens."""

    async def reconnect_each_time(directory: str) -> None:
        path, received = f"{directory}/line", asyncio.Queue[bytes]()
        client = IpcClient(path, received.put_nowait, lambda: client.send(b"hello"))
        for number in range(3):
            server = IpcPeer()
            server.ipc.listen(path)
            async with asyncio.timeout(WITHIN_S):
                while not server.received:
                    await asyncio.sleep(0.001)
                    server.receive()
            route, hello = server.received[0]
            assert hello == b"hello"
            data = b"%d" % number * (1 << 20)
            server.ipc.send(route, data)
            async with asyncio.timeout(WITHIN_S):
                while received.empty():
                    await asyncio.sleep(0.001)
                    server.receive()
            assert received.get_nowait() == data
            server.ipc.close()
        client.close()
        client.send(b"lost")
        async with asyncio.timeout(WITHIN_S):
            while len(asyncio.all_tasks()) > 1:  # until the task that reconnects has ended
                await asyncio.sleep(0)

    with TemporaryDirectory() as directory, asyncio.Runner(loop_factory=uvloop.new_event_loop) as r:
        r.run(reconnect_each_time(directory))
