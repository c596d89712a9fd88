"""An ensemble: ZooKeeper servers on this machine that are one service, or a single server.

    with Ensemble(Path("zk"), 3) as ensemble:
        ensemble.wait_until_ready()
        client = connect(ensemble.addresses, timeout_s=5)
        ensemble.leader().kill()

It serves as long as more than half of its servers run. Servers may be killed and started again, one
by one; they keep their data and their ports.
"""

from __future__ import annotations

import errno
import os
import random
import socket
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from driftline.deploy.zookeeper.server import Member, Server, command_line
from driftline.engine.durable import Lock
from driftline.engine.errors import Unavailable

READY_S = 60.0
"""How long servers may take until they serve, in seconds."""

LOOK_EVERY_S = 0.02
"""Seconds between two looks at servers that are about to serve."""

LOOPBACK = "127.0.0.1"

FREE_PORTS = range(15_000, 32_000)
"""Where free ports are looked for: below those that the kernel gives to connections. It might give
the port of a server away while that server is down."""


class Ensemble:
    """`size` servers with their data in `directory`, listening at `host` from `port` on.

    `port` 0: free ports. A context manager: starts them, and ends them.
    """

    def __init__(
        self, directory: Path, size: int = 1, *, host: str = LOOPBACK, port: int = 0
    ) -> None:
        self._directory = directory
        self._size = size
        self._host = host
        self._port = port
        self._lock: Lock | None = None
        self.servers: list[Server] = []

    def __enter__(self) -> Self:
        """Raises Unavailable if the servers cannot run, InUse if the directory is in use."""
        command = command_line()
        self._lock = self._locked()
        try:
            members = self._members()
            self.servers = [
                Server(command, self._directory, self._host, member, members) for member in members
            ]
            for server in self.servers:
                server.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def addresses(self) -> str:
        """What clients connect to: all servers, with commas."""
        return ",".join(server.address for server in self.servers)

    def wait_until_ready(self) -> None:
        """Wait until all servers that were started serve. Raises Unavailable if one ends."""
        deadline = monotonic() + READY_S
        waiting = [server for server in self.servers if server.wanted]
        while waiting := [server for server in waiting if not server.mode()]:
            for server in waiting:
                if not server.runs:
                    raise ended(server)
                if monotonic() > deadline:
                    raise Unavailable(
                        f"ZooKeeper server {server.number} does not serve after {READY_S:g} s:"
                        f"\n  {server.why()}"
                    )
            sleep(LOOK_EVERY_S)

    def leader(self) -> Server:
        """The server that leads now; a single one does. Waits until there is one."""
        deadline = monotonic() + READY_S
        while monotonic() < deadline:
            for server in self.servers:
                if server.runs and server.mode() in ("leader", "standalone"):
                    return server
            sleep(LOOK_EVERY_S)
        raise Unavailable(f"no ZooKeeper server of {self.addresses} leads")

    def wait(self) -> None:
        """Wait until a server ends, and raise Unavailable. Precondition: this process has no other
        children."""
        while all(server.runs for server in self.servers):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        raise ended(next(server for server in self.servers if not server.runs))

    def stop(self) -> None:
        """End all servers."""
        for server in self.servers:
            server.stop()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _locked(self) -> Lock:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            return Lock(
                self._directory / "lock",
                f"{self._directory} is in use by other ZooKeeper servers: end them, or give "
                "another directory",
            )
        except OSError as error:
            raise Unavailable(f"{self._directory}: {error.strerror}") from None

    def _members(self) -> list[Member]:
        """All servers, with ports that are free now. Raises Unavailable."""
        members = []
        with ExitStack() as taken:  # until all ports are chosen, so that they differ

            def free(host: str, port: int = 0) -> int:
                listener = taken.enter_context(_listener(host, port))
                return int(listener.getsockname()[1])

            for i in range(self._size):
                port = free(self._host, self._port + i if self._port else 0)
                members.append(Member(i + 1, port, free(LOOPBACK), free(LOOPBACK)))
        return members


def ended(server: Server) -> Unavailable:
    """The error for a server that has ended by itself."""
    return Unavailable(f"ZooKeeper server {server.number} has ended:\n  {server.why()}")


def _listener(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0: at a free one. Raises Unavailable."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = [port] if port else random.sample(FREE_PORTS, 100)
    for one in ports:
        try:
            return socket.create_server((host, one), family=family)
        except socket.gaierror as error:
            raise Unavailable(f"{host}: {error.strerror}") from None
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                reason = os.strerror(error.errno or 0)
                raise Unavailable(f"cannot listen at {host}, port {one}: {reason}") from None
    if port:
        raise Unavailable(
            f"port {port} of {host} is in use: end what listens there, or give another --port"
        )
    raise Unavailable(f"no port of {host} is free")
