"""The HTTP server of a process, and clients of all kinds."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from time import monotonic

import pytest

from driftline.deploy.host.loop.runtime import Runtime
from driftline.deploy.host.metrics.collector import of_flow, registry_of
from driftline.deploy.host.metrics.endpoint import Endpoint, check_all
from driftline.deploy.host.metrics.health import TURNS_WITHIN_S, Health
from driftline.deploy.host.metrics.samples import Sample
from driftline.deploy.host.metrics.server import CONNECTIONS_MAX, MetricsServer
from driftline.engine.errors import FlowError, Unavailable
from tests.deploy.host.metrics.scraping import ask, scrape

LIMIT_S = 30.0

FAULTS: list[str] = []
"""Why the process is not ready."""

HELD = threading.Event()
"""Set: a scrape may go on."""


def samples() -> Iterator[Sample]:
    HELD.wait()
    yield "driftline_recoveries_total", (), 4


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[MetricsServer]:
    """`request.param`: seconds that a connection may take."""
    FAULTS.clear()
    HELD.set()
    connection_s: float = getattr(request, "param", LIMIT_S)
    health = Health(Runtime(), lambda: ", ".join(FAULTS))
    place = Endpoint("127.0.0.1", 0).place()
    server = MetricsServer(
        *place, registry_of(of_flow("flow", samples)), health, connection_s=connection_s
    )
    server.start()
    yield server
    HELD.set()
    server.stop()
    for thread in threading.enumerate():
        if thread.name == "scrape":
            thread.join(LIMIT_S)
            assert not thread.is_alive()


def connect(server: MetricsServer) -> socket.socket:
    return socket.create_connection(server.socket.getsockname()[:2], timeout=LIMIT_S)


def everything(connection: socket.socket) -> bytes:
    """What comes until the connection ends."""
    found = b""
    try:
        while data := connection.recv(1 << 16):
            found += data
    except ConnectionError:  # it had not read all that was sent to it
        pass
    return found


def test_it_has_three_pages(server: MetricsServer) -> None:
    assert scrape(server.url)["driftline_recoveries_total",] == 4
    chosen = ask(f"{server.url}/metrics?name[]=driftline_recoveries_total").text
    assert chosen.splitlines()[-1] == 'driftline_recoveries_total{flow="flow"} 4.0'
    assert ask(f"{server.url}/healthz").status == 200
    assert ask(f"{server.url}/readyz").status == 200
    FAULTS.append("node-0: loading 40 %")
    assert ask(f"{server.url}/readyz").status == 503
    assert ask(f"{server.url}/readyz").text == "node-0: loading 40 %\n"
    assert ask(f"{server.url}/").status == 404
    assert ask(f"{server.url}/../../etc/passwd").status == 404


def test_a_loop_that_does_not_turn_is_not_healthy() -> None:
    health = Health(Runtime(), lambda: "")
    now = monotonic()
    assert not health.why_not_healthy(now)
    assert "has not turned for" in health.why_not_healthy(now + TURNS_WITHIN_S + 1)


def test_a_large_head_is_refused_and_not_kept(server: MetricsServer) -> None:
    with connect(server) as connection:
        with suppress(ConnectionError):
            connection.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (1 << 20) + b"\r\n\r\n")
        answer = everything(connection)
    assert b" 200 " not in answer
    with connect(server) as connection:
        with suppress(ConnectionError):
            connection.sendall(b"GET /metrics HTTP/1.1\r\n" + b"X: x\r\n" * 100_000)
        answer = everything(connection)
    assert b" 200 " not in answer
    assert ask(f"{server.url}/healthz").status == 200


@pytest.mark.parametrize(
    "request_", [b"\r\n\r\n", b"\x00\xff\x16\x03\x01\r\n\r\n", b"GET\r\n\r\n", b"A B C D E\r\n\r\n"]
)
def test_garbage_gets_an_error_or_nothing(request_: bytes, server: MetricsServer) -> None:
    with connect(server) as connection:
        connection.sendall(request_)
        connection.shutdown(socket.SHUT_WR)
        assert b"200" not in everything(connection).partition(b"\r\n")[0]
    assert ask(f"{server.url}/healthz").status == 200


def test_methods_that_change_something_do_not_exist(server: MetricsServer) -> None:
    for method in (b"POST", b"PUT", b"DELETE"):
        with connect(server) as connection:
            connection.sendall(method + b" /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello")
            assert b" 501 " in everything(connection).partition(b"\r\n")[0]


@pytest.mark.parametrize("server", [0.5], indirect=True)
def test_a_client_that_sends_slowly_is_cut(server: MetricsServer) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        assert everything(connection) == b""


def test_clients_that_hold_all_threads_do_not_keep_a_scrape_out(server: MetricsServer) -> None:
    """As many threads as there may be, whatever clients do; the oldest gives way."""
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(server)) for _ in range(200)]
        for connection in slow:
            with suppress(ConnectionError):
                connection.sendall(b"GET /metrics")
        assert scrape(server.url)["driftline_recoveries_total",] == 4
        assert server.connections <= CONNECTIONS_MAX


def test_more_scrapes_than_threads_are_refused_and_the_others_answered(
    server: MetricsServer,
) -> None:
    HELD.clear()
    with ExitStack() as stack:
        asking = [stack.enter_context(connect(server)) for _ in range(CONNECTIONS_MAX + 1)]
        for connection in asking:
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert everything(asking[-1]) == b""
        assert server.connections == CONNECTIONS_MAX
        HELD.set()
        assert b" 200 " in everything(asking[1]).partition(b"\r\n")[0]


def test_a_copy_of_the_process_holds_no_port(server: MetricsServer) -> None:
    """Else a node that is started again could not listen while a copy of the old one lives."""
    port = server.socket.getsockname()[1]
    held, mine = os.pipe()
    copy = os.fork()
    if not copy:
        os.close(mine)
        os.read(held, 1)  # until the test is over
        os._exit(0)
    try:
        server.stop()
        Endpoint("127.0.0.1", port).check()
    finally:
        os.close(mine)
        os.close(held)
        os.waitpid(copy, 0)


def test_a_port_that_is_taken_is_named(server: MetricsServer) -> None:
    port = server.socket.getsockname()[1]
    with pytest.raises(Unavailable, match=f"127.0.0.1:{port}: Address already in use"):
        check_all(f"127.0.0.1:{port - 2}", 3)


@pytest.mark.parametrize("text", ["9100", ":9100", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65534"])
def test_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(FlowError, match="metrics cannot be served"):
        check_all(text, 3)


@pytest.mark.parametrize(
    ("text", "host", "port", "is_local"),
    [
        ("[::1]:9100", "::1", 9100, True),
        ("*:0", "*", 0, False),
        ("localhost:1", "localhost", 1, True),
    ],
)
def test_addresses(text: str, host: str, port: int, is_local: bool) -> None:
    endpoint = Endpoint.of(text)
    assert (endpoint.host, endpoint.port, endpoint.is_local) == (host, port, is_local)
    assert endpoint.of_child(2).port == (port + 2 if port else 0)
