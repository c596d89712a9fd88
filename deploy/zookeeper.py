"""A ZooKeeper server on this machine, for development.

    with ZooKeeperServer(Path("zk")) as server:
        server.wait_until_ready()
        client = connect(server.address, timeout_s=5)  # of driftline.coordinator.zookeeper

The server is a Java process. A directory contains its data, its configuration (rewritten at each
start), its log, and Java's own output. The server runs in this directory, with relative paths, so
that the directory's name may contain any characters. When the parent exits, the kernel kills the
server. The server is part of PySpark's jars.
"""

from __future__ import annotations

import errno
import os
import random
import re
import socket
import subprocess
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from driftline.deploy.runtime.supervision.lifeline import Lifeline, wrap_command
from driftline.deploy.runtime.supervision.restarts import describe_exit
from driftline.engine.durable import Lock, translate_os_errors
from driftline.engine.errors import Unavailable
from driftline.pipeline.session import FRUGAL_JVM_OPTIONS, find_java

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

HEAP = "-Xmx256m"

STOP_TIMEOUT_S = 10.0
"""Seconds that the server may take to exit after SIGTERM."""

READY_TIMEOUT_S = 60.0
"""Seconds that the server may take until it serves clients."""

SERVER_POLL_S = 0.02
"""Seconds between two polls of a server that is starting."""

STATUS_TIMEOUT_S = 1.0
"""Timeout of a status request to the server, in seconds."""

LOOPBACK = "127.0.0.1"

FREE_PORTS = range(15_000, 32_000)
"""Ports from which a free one is chosen: they are smaller than the kernel's ephemeral ports.

The kernel might give an ephemeral port to a connection while the server is down.
"""

SHOWN_LINES = 5
"""Maximum number of log lines, and of lines of Java's output, that an error shows."""

_QUIET = re.compile(r"\s|\S+ (INFO|DEBUG) ")
"""Matches log lines that an error does not show: information, debugging, and stack traces."""

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


class ZooKeeperServer:
    """ZooKeeper server with its data in `directory`, which listens for clients at `host`.

    `port`: for clients; 0: a free port; `settings`: further lines of its configuration. A context
    manager that starts and stops the server. Within the context, the server may be killed and
    restarted; it keeps its data and its port.
    """

    def __init__(
        self, directory: Path, *, host: str = LOOPBACK, port: int = 0, settings: str = ""
    ) -> None:
        self.directory = directory
        self.port = port
        self._host = host
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: Lifeline | None = None
        self._log_offset = 0
        """Offset in the log at which the lines of the current process begin."""

    def __enter__(self) -> Self:
        """Start the server.

        Raises Unavailable if it cannot run, InUse if another server uses its directory.
        """
        self._command = command_line()
        in_use = f"{self.directory} is in use by another ZooKeeper server: stop it, or give another"
        with translate_os_errors("directory", self.directory), ExitStack() as stack:
            self.directory.mkdir(parents=True, exist_ok=True)
            stack.callback(Lock(self.directory / "lock", f"{in_use} directory").release)
            stack.callback(self.stop)
            self.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def address(self) -> str:
        """The address for clients on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the server. Precondition: it has been started."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the server's process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server on its existing data. Raises Unavailable, OSError.

        Precondition: the server does not run.
        """
        assert not self.is_running
        self._reap()
        with _listener(self._host, self.port) as listener:
            self.port = int(listener.getsockname()[1])
        self._configure()
        log = self.directory / LOG
        self._log_offset = log.stat().st_size if log.exists() else 0
        lifeline = Lifeline()
        with (self.directory / JAVA_OUTPUT).open("wb") as output:
            self._process = subprocess.Popen(
                wrap_command(lifeline.fd, self._command),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[lifeline.fd],
                start_new_session=True,  # Ctrl-C is for the parent
            )
        lifeline.on_child_started()
        self._lifeline = lifeline

    def mode(self) -> str:
        """Return the server's mode: `standalone`, `leader` or `follower`; "" if it is not ready."""
        host, _, port = self.address.rpartition(":")
        try:
            with socket.create_connection(
                (host.strip("[]"), int(port)), STATUS_TIMEOUT_S
            ) as connection:
                connection.sendall(b"srvr")
                with connection.makefile("r", errors="replace") as answer:
                    lines = answer.read().splitlines()
        except OSError:
            return ""
        return next((line[6:] for line in lines if line.startswith("Mode: ")), "")

    def wait_until_ready(self) -> None:
        """Wait until the server serves. Raises Unavailable if it exits or takes too long."""
        deadline = monotonic() + READY_TIMEOUT_S
        while not self.mode():
            if not self.is_running:
                raise self._exit_error()
            if monotonic() > deadline:
                failure = self._describe_failure()
                text = f"ZooKeeper is not ready after {READY_TIMEOUT_S:g} s:\n  {failure}"
                raise Unavailable(text)
            sleep(SERVER_POLL_S)

    def wait(self) -> None:
        """Wait until the server exits, and raise Unavailable. Precondition: it has been started."""
        assert self._process is not None
        self._process.wait()
        raise self._exit_error()

    def kill(self) -> None:
        """Kill the server, if it runs, to simulate a crash."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def stop(self) -> None:
        """Shut the server down; kill it if it does not exit in time."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
            self.kill()

    def _exit_error(self) -> Unavailable:
        """Return the error for a server that exited by itself."""
        return Unavailable(f"ZooKeeper has ended:\n  {self._describe_failure()}")

    def _describe_failure(self) -> str:
        """Return why the server failed, for an error.

        Contains the exit status, the last warnings and errors logged since the server's start, the
        last lines of Java's output, and the path of the log.
        """
        assert self._process is not None
        status = self._process.poll()
        lines = [describe_exit(status)] if status is not None else []
        with suppress(OSError), (self.directory / LOG).open(errors="replace") as log:
            log.seek(self._log_offset if os.fstat(log.fileno()).st_size >= self._log_offset else 0)
            messages = [line for line in log.read().splitlines() if not _QUIET.match(line)]
            lines += messages[-SHOWN_LINES:]
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
        settings += self._settings
        (self.directory / "zoo.cfg").write_text(settings)
        (self.directory / "log4j2.properties").write_text(LOGGING)


def command_line() -> list[str]:
    """Return the command line that runs the server in its directory.

    Raises Unavailable without PySpark or Java.
    """
    spec = find_spec("pyspark")
    folders = [] if spec is None else spec.submodule_search_locations or []
    jars = [Path(folder) / "jars" for folder in folders]
    jar_folders = [folder for folder in jars if any(folder.glob("zookeeper-*.jar"))]
    if not jar_folders:
        raise Unavailable(
            "the ZooKeeper server comes with PySpark, which is not installed: "
            "pip install 'driftline[spark]'"
        )
    java = find_java("ZooKeeper")
    logging = "-Dlog4j2.configurationFile=log4j2.properties"
    return [java, HEAP, *FRUGAL_JVM_OPTIONS, logging, "-cp", f"{jar_folders[0]}/*", MAIN, "zoo.cfg"]


def _listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens at a port; 0: at a free one. Raises Unavailable."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = [port] if port else random.sample(FREE_PORTS, 100)
    for candidate in ports:
        try:
            return socket.create_server((host, candidate), family=family)
        except socket.gaierror as error:
            raise Unavailable(f"{host}: {error.strerror}") from None
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                reason = os.strerror(error.errno or 0)
                raise Unavailable(f"cannot listen at {host}, port {candidate}: {reason}") from None
    if port:
        raise Unavailable(
            f"port {port} of {host} is in use: stop the process that listens there, or give "
            "another --port"
        )
    raise Unavailable(f"no port of {host} is free")
