"""An ensemble of ZooKeeper servers on this machine, or a single server.

    with Ensemble(Path("zk"), 3) as ensemble:
        ensemble.wait_until_ready()
        client = connect(ensemble.addresses, timeout_s=5)
        ensemble.leader().kill()

The ensemble serves clients while more than half of its servers run. Servers may be killed and
restarted one by one; they keep their data and their ports.

Each server is a Java process with its own directory for its data, its configuration (rewritten at
each start), its log, and Java's own output. The server runs in that directory, with relative paths,
so that the directory's name may have any characters. When the parent exits, the kernel kills the
server. The servers come from the jars of PySpark.
"""

from __future__ import annotations

import errno
import os
import random
import re
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from driftline.deploy.runtime.supervision.lifeline import Lifeline, wrap_command
from driftline.deploy.runtime.supervision.restarts import describe_exit
from driftline.engine.durable import Lock
from driftline.engine.errors import Unavailable
from driftline.pipeline.session import FRUGAL, find_java

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

HEAP = "-Xmx256m"

STOP_S = 10.0
"""Seconds that a server may take to exit after SIGTERM."""

ASK_S = 1.0
"""Timeout of a status request to a server, in seconds."""

SHOWN_LINES = 5
"""Number of log lines that an error shows."""

_QUIET = re.compile(r"\s|\S+ (INFO|DEBUG) ")
"""Log lines unrelated to an error, and lines of a stack trace."""

LOG, JAVA_OUTPUT = "zookeeper.log", "java.out"

SETTINGS = """\
# written at each start
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
initLimit=20
syncLimit=10
maxClientCnxns=1000
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
dataDir=./data
"""
"""A tick of 500 ms (`tickTime`) makes sessions of 1 s possible; limits are in ticks."""

LOGGING = f"""\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {LOG}
appender.file.filePattern = {LOG}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %c{{1}}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


@dataclass(frozen=True, slots=True)
class ZooKeeperServer:
    """A server of an ensemble: its number, from 1, and its ports.

    `port` is for clients, `quorum` for followers, and `election` for elections.
    """

    number: int
    port: int
    quorum: int
    election: int


class Server:
    """The server `member` of the ensemble `members`, of which it may be the only one.

    `command`: the command line that runs it. `host`: the address at which it listens to clients.
    Its directory is `server-N` in `directory`.
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        host: str,
        member: ZooKeeperServer,
        members: Sequence[ZooKeeperServer],
    ) -> None:
        self._command = command
        self.directory = directory / f"server-{member.number}"
        self.number, self.port = member.number, member.port
        self._host = host
        self._members = members if len(members) > 1 else ()
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: Lifeline | None = None
        self._log_begins = 0
        """Offset in its log at which the lines of this process begin."""

    @property
    def address(self) -> str:
        """The address for clients on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def pid(self) -> int:
        """Its process id. Precondition: it has been started."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def should_run(self) -> bool:
        """Whether it was started, and neither killed nor stopped since."""
        return self._lifeline is not None

    def start(self) -> None:
        """Start it on its existing data. Raise Unavailable. Precondition: it does not run."""
        assert not self.is_running
        self._reap()
        try:
            self._configure()
            said = (self.directory / JAVA_OUTPUT).open("wb")
            log = self.directory / LOG
            self._log_begins = log.stat().st_size if log.exists() else 0
        except OSError as error:
            raise Unavailable(f"{self.directory}: {error.strerror}") from None
        lifeline = Lifeline()
        with said:
            self._process = subprocess.Popen(
                wrap_command(lifeline.fd, self._command),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=[lifeline.fd],
                start_new_session=True,  # Ctrl-C is for the parent
            )
        lifeline.on_child_started()
        self._lifeline = lifeline

    def mode(self) -> str:
        """Return its mode: `standalone`, `leader` or `follower`; empty if it does not serve."""
        host, _, port = self.address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), ASK_S) as connection:
                connection.sendall(b"srvr")
                with connection.makefile("r", errors="replace") as answer:
                    lines = answer.read().splitlines()
        except OSError:
            return ""
        return next((line[6:] for line in lines if line.startswith("Mode: ")), "")

    def kill(self) -> None:
        """Kill it, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def stop(self) -> None:
        """Shut it down; kill it if it does not exit in time."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
            self.kill()

    def describe_failure(self) -> str:
        """Return its exit status, and the warnings and errors logged since its start."""
        assert self._process is not None
        status = self._process.poll()
        lines = [describe_exit(status)] if status is not None else []
        with suppress(OSError), (self.directory / LOG).open(errors="replace") as log:
            log.seek(self._log_begins if os.fstat(log.fileno()).st_size >= self._log_begins else 0)
            told = [line for line in log.read().splitlines() if not _QUIET.match(line)]
            lines += told[-SHOWN_LINES:]
        with suppress(OSError):
            lines += (
                (self.directory / JAVA_OUTPUT)
                .read_text(errors="replace")
                .splitlines()[-SHOWN_LINES:]
            )
        return "\n  ".join([*lines, f"its log is {self.directory / LOG}"])

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
        if self._lifeline is not None:
            self._lifeline.cut()
            self._lifeline = None

    def _configure(self) -> None:
        (self.directory / "data").mkdir(parents=True, exist_ok=True)
        settings = SETTINGS + f"clientPortAddress={self._host}\nclientPort={self.port}\n"
        for member in self._members:
            ports = f"{member.quorum}:{member.election}"
            settings += f"server.{member.number}=127.0.0.1:{ports}\n"
        (self.directory / "data" / "myid").write_text(f"{self.number}\n")
        (self.directory / "zoo.cfg").write_text(settings)
        (self.directory / "log4j2.properties").write_text(LOGGING)


def command_line() -> list[str]:
    """Return the command line that runs a server in its directory.

    Raises Unavailable without PySpark or Java.
    """
    spec = find_spec("pyspark")
    folders = [] if spec is None else spec.submodule_search_locations or []
    jars = [Path(folder) / "jars" for folder in folders]
    found = [folder for folder in jars if any(folder.glob("zookeeper-*.jar"))]
    if not found:
        raise Unavailable(
            "the ZooKeeper server comes with PySpark, which is not installed: "
            "pip install 'driftline[spark]'"
        )
    java = find_java("ZooKeeper")
    logging = "-Dlog4j2.configurationFile=log4j2.properties"
    return [java, HEAP, *FRUGAL, logging, "-cp", f"{found[0]}/*", MAIN, "zoo.cfg"]


READY_S = 60.0
"""Seconds that servers may take until they serve clients."""

SERVER_POLL_S = 0.02
"""Seconds between two polls of servers that are starting."""

LOOPBACK = "127.0.0.1"

FREE_PORTS = range(15_000, 32_000)
"""Range to choose free ports from: below the kernel's ephemeral ports.

The kernel might give an ephemeral port to a connection while its server is down.
"""


class Ensemble:
    """Ensemble of `size` servers with their data in `directory`, which listen at `host`.

    Their ports begin at `port`; 0: free ports. A context manager that starts and stops them.
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
        """Start the servers.

        Raises Unavailable if the servers cannot run, InUse if the directory is in use.
        """
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
        """The connection string for clients: all servers, separated by commas."""
        return ",".join(server.address for server in self.servers)

    def wait_until_ready(self) -> None:
        """Wait until all started servers serve. Raise Unavailable if one exits."""
        deadline = monotonic() + READY_S
        waiting = [server for server in self.servers if server.should_run]
        while waiting := [server for server in waiting if not server.mode()]:
            for server in waiting:
                if not server.is_running:
                    raise make_exit_error(server)
                if monotonic() > deadline:
                    raise Unavailable(
                        f"ZooKeeper server {server.number} does not serve after {READY_S:g} s:"
                        f"\n  {server.describe_failure()}"
                    )
            sleep(SERVER_POLL_S)

    def leader(self) -> Server:
        """Wait for a leader and return it; a single server is one. Raise Unavailable."""
        deadline = monotonic() + READY_S
        while monotonic() < deadline:
            for server in self.servers:
                if server.is_running and server.mode() in ("leader", "standalone"):
                    return server
            sleep(SERVER_POLL_S)
        raise Unavailable(f"no ZooKeeper server of {self.addresses} leads")

    def wait(self) -> None:
        """Wait until a server exits, and raise Unavailable.

        Precondition: this process has no other children.
        """
        while all(server.is_running for server in self.servers):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        raise make_exit_error(next(server for server in self.servers if not server.is_running))

    def stop(self) -> None:
        """Stop all servers."""
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

    def _members(self) -> list[ZooKeeperServer]:
        """Return all servers, with ports that are free now. Raise Unavailable."""
        members = []
        with ExitStack() as taken:  # until all ports are chosen, so that they differ

            def free(host: str, port: int = 0) -> int:
                listener = taken.enter_context(_listener(host, port))
                return int(listener.getsockname()[1])

            for i in range(self._size):
                port = free(self._host, self._port + i if self._port else 0)
                members.append(ZooKeeperServer(i + 1, port, free(LOOPBACK), free(LOOPBACK)))
        return members


def make_exit_error(server: Server) -> Unavailable:
    """Return the error for a server that exited by itself."""
    return Unavailable(
        f"ZooKeeper server {server.number} has ended:\n  {server.describe_failure()}"
    )


def _listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0: at a free one. Raise Unavailable."""
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
