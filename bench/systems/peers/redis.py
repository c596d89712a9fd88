"""Redis search, where it is installed: a server of its own, spoken to over a Unix socket.

`appendfsync always`: a write is in the log on the disk when it is answered, so it is as durable as
that of Driftline. Nothing else is saved meanwhile. No stop words and no stemming, as Driftline has
none; positions are there, for phrases. Redis 8 has search in itself; older servers need the module
RediSearch, from version 2 on with hashes, before with FT.ADD.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import BinaryIO

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.load import LIMIT
from driftline.bench.measuring.queries import Query
from driftline.bench.systems.peers.peer import bytes_in

SERVERS = "redis-stack-server", "redis-server"
MODULES = (
    Path("/usr/lib/redis/modules/redisearch.so"),
    Path("/opt/redis-stack/lib/redisearch.so"),
)
STARTS_WITHIN_S = 10.0
INDEX = "documents"
WITH_HASHES = 20_000
"""From this version of the module on it indexes hashes."""

Reply = int | bytes | None | list["Reply"]


class RedisError(Exception):
    """The server has refused a command."""


class Redis:
    """A server with its files in a directory."""

    commit_every_s = 0.0

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._socket = directory / "redis"
        found = next(filter(None, map(shutil.which, SERVERS)))
        command = [found, "--port", "0", "--unixsocket", str(self._socket), "--dir", str(directory)]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        for module in MODULES:
            if module.exists():
                command += ["--loadmodule", str(module)]
                break
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            self._writer = self._connected()
            self._has_hashes = self._create()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def write(self, documents: Documents) -> None:
        """See Peer. One round trip, and at most one write to the disk, for all of them."""
        commands: list[tuple[str, ...]] = [
            ("HSET", id, "text", text)
            if self._has_hashes
            else ("FT.ADD", INDEX, id, "1.0", "FIELDS", "text", text)
            for id, text in documents
        ]
        self._writer.all(commands)

    def asker(self) -> Callable[[Query], list[str]]:
        """See Peer."""
        connection = Connection(self._socket)

        def ask(query: Query) -> list[str]:
            found = connection.one(
                "FT.SEARCH", INDEX, written(query), "NOCONTENT", "LIMIT", "0", str(LIMIT)
            )
            assert isinstance(found, list)
            return [id.decode() for id in found[1:] if isinstance(id, bytes)]

        return ask

    def figures(self) -> dict[str, float]:
        """See Peer."""
        return {"disk_bytes": bytes_in(self._directory)}

    def close(self) -> None:
        """See Peer."""
        self._process.terminate()
        self._process.wait()

    def _connected(self) -> Connection:
        until = monotonic() + STARTS_WITHIN_S
        while True:
            try:
                return Connection(self._socket)
            except OSError:
                if monotonic() > until or self._process.poll() is not None:
                    raise
                sleep(0.02)

    def _create(self) -> bool:
        """Make the index. Returns whether it indexes hashes. Raises RedisError."""
        has_hashes = self._version() >= WITH_HASHES
        on = ("ON", "HASH") if has_hashes else ()
        self._writer.one(
            "FT.CREATE", INDEX, *on, "STOPWORDS", "0", "SCHEMA", "text", "TEXT", "NOSTEM"
        )
        return has_hashes

    def _version(self) -> int:
        """Of the module, as it counts itself. Raises RedisError."""
        modules = self._writer.one("MODULE", "LIST")
        assert isinstance(modules, list)
        for module in modules:
            assert isinstance(module, list)
            named = dict(zip(module[::2], module[1::2], strict=True))
            if named.get(b"name") in (b"ft", b"search"):
                version = named.get(b"ver")
                assert isinstance(version, int)
                return version
        raise RedisError("it has no module for search")


class Connection:
    """Sends commands, and reads replies (RESP 2)."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._file: BinaryIO = self._socket.makefile("rb")

    def one(self, *command: str) -> Reply:
        """The reply to a command. Raises RedisError."""
        return self.all([command])[0]

    def all(self, commands: list[tuple[str, ...]]) -> list[Reply]:
        """The replies to commands, which are sent together. Raises RedisError."""
        self._socket.sendall(b"".join(map(_encoded, commands)))
        return [self._reply() for _ in commands]

    def _reply(self) -> Reply:
        line = self._file.readline()
        kind, rest = line[:1], line[1:].rstrip()
        match kind:
            case b"+":
                return rest
            case b":":
                return int(rest)
            case b"$":
                size = int(rest)
                return None if size < 0 else self._file.read(size + 2)[:-2]
            case b"*":
                return [self._reply() for _ in range(int(rest))]
        raise RedisError(rest.decode(errors="replace") or "the server has gone")


def _encoded(command: tuple[str, ...]) -> bytes:
    parts = [f"*{len(command)}\r\n".encode()]
    for text in command:
        data = text.encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


def missing() -> str:
    """Why there is no Redis search here; "" if there may be."""
    server = next(filter(None, map(shutil.which, SERVERS)), None)
    if server is None:
        return f"not installed: none of {', '.join(SERVERS)} is on the path"
    if any(module.exists() for module in MODULES):
        return ""
    told = subprocess.run([server, "--version"], capture_output=True, text=True).stdout
    version = told.partition("v=")[2].partition(".")[0]
    if version.isdecimal() and int(version) >= 8:
        return ""
    return f"{server} has no search: it needs Redis 8, or the module RediSearch"


def written(query: Query) -> str:
    """A query in the language of Redis search."""
    if query.kind == "phrase":
        return '"' + " ".join(query.words) + '"'
    return ("|" if query.kind.startswith("union") else " ").join(query.words)
