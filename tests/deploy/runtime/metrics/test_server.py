"""HTTP server of a process, with well-behaved and misbehaving clients."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic

import pytest

from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.metrics.catalogue import registry_of, tag_with_flow
from driftline.deploy.runtime.metrics.endpoint import check_ports
from driftline.deploy.runtime.metrics.roles import TURN_TIMEOUT_S, Health
from driftline.deploy.runtime.metrics.serving import MetricsServer, pages
from driftline.deploy.runtime.sockets.listening import resolve
from driftline.engine.errors import FlowError, Unavailable
from driftline.engine.meters import Sample
from tests.deploy.runtime.metrics.scraping import ask, scrape

LIMIT_S = 30.0

FAULTS: list[str] = []
"""Why the process is not ready."""


def samples() -> Iterator[Sample]:
    yield "driftline_recoveries_total", (), 4


@contextmanager
def serving(client_s: float = LIMIT_S, port: int = 0) -> Iterator[MetricsServer]:
    """Provide a server; `client_s`: how long a client may be silent."""
    FAULTS.clear()
    health = Health(Runtime(), lambda: ", ".join(FAULTS))
    application = pages(registry_of(tag_with_flow("flow", samples)), health)
    with MetricsServer(*resolve("127.0.0.1", port), application, client_s) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join(LIMIT_S)
            assert not thread.is_alive()


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with serving() as server:
        yield server


def connect(server: MetricsServer) -> socket.socket:
    return socket.create_connection(server.socket.getsockname()[:2], timeout=LIMIT_S)


def receive_all(connection: socket.socket) -> bytes:
    """Return all data until the connection closes."""
    found = b""
    try:
        while data := connection.recv(1 << 16):
            found += data
    except ConnectionError:  # the server closed before it read everything
        pass
    return found


def test_server_answers_metrics_healthz_and_readyz(server: MetricsServer) -> None:
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


def test_hung_loop_is_not_healthy() -> None:
    health = Health(Runtime(), lambda: "")
    now = monotonic()
    assert not health.why_not_healthy(now)
    assert "has not turned for" in health.why_not_healthy(now + TURN_TIMEOUT_S + 1)


def test_large_request_head_is_rejected_and_not_buffered(server: MetricsServer) -> None:
    with connect(server) as connection:
        with suppress(ConnectionError):
            connection.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (1 << 20) + b"\r\n\r\n")
        answer = receive_all(connection)
    assert b" 200 " not in answer
    assert ask(f"{server.url}/healthz").status == 200


def test_silent_client_is_disconnected_and_does_not_delay_scrapes() -> None:
    with serving(client_s=0.5) as server, ExitStack() as stack:
        slow = [stack.enter_context(connect(server)) for _ in range(20)]
        for connection in slow:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        assert scrape(server.url)["driftline_recoveries_total",] == 4
        assert [receive_all(connection) for connection in slow] == [b""] * 20


def test_port_in_use_is_reported() -> None:
    port = 20_002 + os.getpid() % 4000 * 3  # other tests get ports from 32768 on, from the kernel
    in_use = f"127.0.0.1:{port}: Address already in use"
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(Unavailable, match=in_use),
    ):
        check_ports(f"127.0.0.1:{port - 2}", 3)


def test_wrong_address_is_rejected() -> None:
    for text in ("9100", ":9100", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65534"):
        with pytest.raises(FlowError, match="cannot serve metrics"):
            check_ports(text, 3)


def test_externally_reachable_metrics_log_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    check_ports("127.0.0.1:0", 3)
    assert not caplog.messages
    check_ports("0.0.0.0:0", 3)
    assert "other machines can read the metrics at 0.0.0.0:0" in caplog.text
