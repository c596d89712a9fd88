"""One ZooKeeper server: a process of Java, with a directory of its own.

The directory has the server's data and its configuration, which is written at each start; the
server's log; and what Java itself says. The server runs in that directory, with relative paths, so
that its name may have any characters. When its parent ends, the kernel ends the server.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from driftline.deploy.runtime.supervision.lifeline import Lifeline, tied
from driftline.deploy.runtime.supervision.restarts import how
from driftline.engine.errors import Unavailable
from driftline.pipeline.session import FRUGAL, find_java

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

HEAP = "-Xmx256m"

STOP_S = 10.0
"""How long a server may take to end by itself, in seconds."""

ASK_S = 1.0
"""How long a server may take to say how it is, in seconds."""

SHOWN_LINES = 5
"""Lines of the log that an error shows."""

_QUIET = re.compile(r"\s|\S+ (INFO|DEBUG) ")
"""Lines of the log that say nothing of an error, and those of a stack trace."""

LOG, SAID = "zookeeper.log", "java.out"

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
class Member:
    """A server of an ensemble: its number, from 1, and its ports: for clients, for followers, and
    for elections."""

    number: int
    port: int
    quorum: int
    election: int


class Server:
    """The server `member` of the ensemble `members`, which may be it alone.

    `command`: the command line that runs it. `host`: the address at which it listens to clients.
    Its directory is `server-N` in `directory`.
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        host: str,
        member: Member,
        members: Sequence[Member],
    ) -> None:
        self._command = command
        self.directory = directory / f"server-{member.number}"
        self.number, self.port = member.number, member.port
        self._host = host
        self._members = members if len(members) > 1 else ()
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: Lifeline | None = None
        self._log_begins = 0
        """Where in its log the lines of this process begin."""

    @property
    def address(self) -> str:
        """Where clients on this machine find it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def pid(self) -> int:
        """The number of its process. Precondition: it has been started."""
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def wanted(self) -> bool:
        """Whether it was started, and neither killed nor stopped since."""
        return self._lifeline is not None

    def start(self) -> None:
        """Start it, on the data that it has. Raises Unavailable. Precondition: it does not run."""
        assert not self.runs
        self._ended()
        try:
            self._configure()
            said = (self.directory / SAID).open("wb")
            log = self.directory / LOG
            self._log_begins = log.stat().st_size if log.exists() else 0
        except OSError as error:
            raise Unavailable(f"{self.directory}: {error.strerror}") from None
        lifeline = Lifeline()
        with said:
            self._process = subprocess.Popen(
                tied(lifeline.fd, self._command),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=[lifeline.fd],
                start_new_session=True,  # Ctrl-C is for the parent
            )
        lifeline.started()
        self._lifeline = lifeline

    def mode(self) -> str:
        """What it is now: `standalone`, `leader` or `follower`; empty if it serves nobody."""
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
        """End it at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._ended()

    def stop(self) -> None:
        """End it in good order; at once, if it does not end."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
            self.kill()

    def why(self) -> str:
        """How it has ended, and the warnings and errors that it has logged since its start."""
        assert self._process is not None
        status = self._process.poll()
        lines = [how(status)] if status is not None else []
        with suppress(OSError), (self.directory / LOG).open(errors="replace") as log:
            log.seek(self._log_begins if os.fstat(log.fileno()).st_size >= self._log_begins else 0)
            told = [line for line in log.read().splitlines() if not _QUIET.match(line)]
            lines += told[-SHOWN_LINES:]
        with suppress(OSError):
            lines += (self.directory / SAID).read_text(errors="replace").splitlines()[-SHOWN_LINES:]
        return "\n  ".join([*lines, f"its log is {self.directory / LOG}"])

    def _ended(self) -> None:
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
    """The command line that runs a server in its directory.

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
