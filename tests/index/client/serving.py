"""Services for tests of clients: in this process, as users start them, and behind a faulty link."""

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
from tests.index.http.service import Service as InMemory
from tests.index.http.service import in_a_thread
from tests.index.truth.service import Service

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


class Serving(Service):
    """A service in a folder, with a schema, tokens, and an address for producers."""

    def __init__(self, folder: Path) -> None:
        self.zmq = f"ipc://{folder}/producers"
        self.token, line = new_token("write", "tests")
        self.reader, another = new_token("read", "reader")
        (folder / "tokens").write_text(f"{line}\n{another}\n")
        (folder / "schema.toml").write_text(SCHEMA)
        files = "--schema", str(folder / "schema.toml"), "--tokens", str(folder / "tokens")
        super().__init__(folder / "state", "--zmq", self.zmq, *files)


@dataclass(frozen=True)
class InProcess:
    """A service in this process, with the same schema and tokens."""

    url: str
    token: str
    reader: str


@contextmanager
def in_process(folder: Path) -> Iterator[InProcess]:
    token, line = new_token("write", "tests")
    reader, another = new_token("read", "reader")
    (folder / "tokens").write_text(f"{line}\n{another}\n")
    (folder / "schema.toml").write_text(SCHEMA)
    schema, settings = load_schema(folder / "schema.toml"), HttpSettings(Access(folder / "tokens"))
    with in_a_thread(lambda: InMemory(folder, schema, shards=1), settings) as url:
        yield InProcess(url, token, reader)


@dataclass(frozen=True)
class Cut:
    """What happens to a connection.

    `let`: so many bytes of answers come through, then it is cut; `says`: this is the answer, and
    the service hears nothing.
    """

    let: int = 0
    says: bytes = b""


class Proxy:
    """Between clients and a service: forwards bytes, and does to connections what is planned.

    A context manager. The plans are for the next connections, one each; those behind are forwarded.
    """

    def __init__(self, url: str) -> None:
        there = urlsplit(url)
        assert there.hostname is not None
        assert there.port is not None
        self._there = there.hostname, there.port
        self.plans: deque[Cut] = deque()
        self.connections = 0
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def cut(self) -> None:
        """Cut all connections."""
        while self._open:
            _close(self._open.pop())

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self.connections += 1
                plan = self.plans.popleft() if self.plans else None
                self._open.add(client)
                threading.Thread(target=self._serve, args=(client, plan), daemon=True).start()

    def _serve(self, client: socket.socket, plan: Cut | None) -> None:
        with suppress(OSError):
            if plan is not None and plan.says:
                client.recv(1 << 16)
                client.sendall(plan.says)
                client.close()
                return
            server = socket.create_connection(self._there)
            self._open.add(server)
            forward = threading.Thread(target=_pump, args=(client, server), daemon=True)
            forward.start()
            _pump(server, client, None if plan is None else plan.let)


def _pump(source: socket.socket, target: socket.socket, most: int | None = None) -> None:
    """Forward until one side ends; `most`: cut both after so many bytes, at the next one."""
    passed = 0
    with suppress(OSError):
        while data := source.recv(1 << 16):
            if most is not None and passed + len(data) > most:
                target.sendall(data[: most - passed])
                break
            passed += len(data)
            target.sendall(data)
    _close(source)
    _close(target)


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def refusal(status: str, body: bytes, *headers: str) -> bytes:
    """An answer as a service or a proxy before it gives one."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join((*lines, "", "")).encode() + body
