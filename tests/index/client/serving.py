"""Services for tests of clients: in this process, as a command, and behind a faulty proxy."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from driftline.index.documents.schema import load_schema
from driftline.serve.http.access import Access, new_token
from driftline.serve.http.operations import HttpSettings
from tests.index.http.service import IndexBackend, serve_in_thread
from tests.index.truth.service import ServiceProcess

SCHEMA = """
[collections.documents.fields.title]
kind = "text"
[collections.documents.fields.text]
kind = "text"
[collections.documents.fields.year]
kind = "number"
[collections.documents.fields.tags]
kind = "keyword"

[collections.strict]
others = "refused"
[collections.strict.fields.text]
kind = "text"
"""


class ClientTestService(ServiceProcess):
    """`driftline serve` with a schema, access tokens, and an address for producers."""

    def __init__(self, folder: Path) -> None:
        self.zmq = f"ipc://{folder}/producers"
        self.token, line = new_token("write", "tests")
        self.reader, another = new_token("read", "reader")
        (folder / "tokens").write_text(f"{line}\n{another}\n")
        (folder / "schema.toml").write_text(SCHEMA)
        files = "--schema", str(folder / "schema.toml"), "--tokens", str(folder / "tokens")
        super().__init__(folder / "state", "--zmq", self.zmq, *files)


@dataclass(frozen=True)
class InProcessService:
    """Address and tokens of a service in this process."""

    url: str
    token: str
    reader: str


@contextmanager
def in_process(folder: Path) -> Iterator[InProcessService]:
    token, line = new_token("write", "tests")
    reader, another = new_token("read", "reader")
    (folder / "tokens").write_text(f"{line}\n{another}\n")
    (folder / "schema.toml").write_text(SCHEMA)
    schema, settings = load_schema(folder / "schema.toml"), HttpSettings(Access(folder / "tokens"))
    with serve_in_thread(lambda: IndexBackend(folder, schema, shards=1), settings) as url:
        yield InProcessService(url, token, reader)


@dataclass(frozen=True)
class ConnectionFault:
    """Fault of a connection.

    `forward_bytes`: the proxy closes the connection after this many bytes of answers. `response`:
    the proxy answers this itself, and the service does not receive the request.
    """

    forward_bytes: int = 0
    response: bytes = b""


class FaultyProxy:
    """Proxy between clients and a service that injects faults into connections; a context manager.

    Each new connection takes the next fault from `faults`; without one it is forwarded unchanged.
    """

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        assert target.hostname is not None
        assert target.port is not None
        self._address = target.hostname, target.port
        self.faults: deque[ConnectionFault] = deque()
        self.connections = 0
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.close_all()

    def close_all(self) -> None:
        """Close all connections."""
        while self._open:
            _close(self._open.pop())

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self.connections += 1
                fault = self.faults.popleft() if self.faults else None
                self._open.add(client)
                threading.Thread(target=self._serve, args=(client, fault), daemon=True).start()

    def _serve(self, client: socket.socket, fault: ConnectionFault | None) -> None:
        with suppress(OSError):
            if fault is not None and fault.response:
                client.recv(1 << 16)
                client.sendall(fault.response)
                client.close()
                return
            server = socket.create_connection(self._address)
            self._open.add(server)
            forward = threading.Thread(target=_pump, args=(client, server), daemon=True)
            forward.start()
            _pump(server, client, None if fault is None else fault.forward_bytes)


def _pump(source: socket.socket, target: socket.socket, bytes_max: int | None = None) -> None:
    """Forward until one side ends, or close both after `bytes_max` bytes."""
    sent_bytes = 0
    with suppress(OSError):
        while data := source.recv(1 << 16):
            if bytes_max is not None and sent_bytes + len(data) > bytes_max:
                target.sendall(data[: bytes_max - sent_bytes])
                break
            sent_bytes += len(data)
            target.sendall(data)
    _close(source)
    _close(target)


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def raw_response(status: str, body: bytes, *headers: str) -> bytes:
    """Return an HTTP response as bytes."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join((*lines, "", "")).encode() + body
