"""Endpoints of a run: the addresses at which its processes serve metrics.

`HOST:PORT` is the endpoint of the command's own process. The others use the ports after it, in a
fixed order: the master, node-0, node-1, ... A restarted process uses the port of its role. With
port 0 each process uses a free port and publishes it.

If the port of any process is in use at the start of the run, the command reports an error. If a
port is in use later, the process logs a warning and serves no metrics: metrics never end a run.

A process that picks its port writes it to a file beside the sockets of its run. An agent reads the
port from this file, for its list of targets. The next process of the same role tries this port
first, because Prometheus refreshes its targets rarely.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from driftline.deploy.runtime.sockets.listening import is_local, listen_tcp
from driftline.engine.errors import FlowError, Unavailable
from driftline.engine.events import event_fields, log

PORT_MAX = 65535


class Endpoint(Struct, frozen=True):
    """Address at which one process serves metrics."""

    host: str
    port: int

    @staticmethod
    def parse(text: str, processes: int = 1) -> Endpoint:
        """Return the command's endpoint, from `HOST:PORT`. Raises FlowError if the text has another
        form, or the port of the last of the `processes` would be too large."""
        host, _, port = text.rpartition(":")
        if not host or not (port.isascii() and port.isdecimal()):
            raise FlowError(f"cannot serve metrics at {text!r}: the address has to be HOST:PORT")
        number = int(port)
        if number and number + processes - 1 > PORT_MAX:
            raise FlowError(
                f"cannot serve metrics at {text}: the ports of the {processes} processes have "
                f"to be below {PORT_MAX + 1}"
            )
        return Endpoint(host.removeprefix("[").removesuffix("]"), number)

    def of_child(self, number: int) -> Endpoint:
        """Return the endpoint of process `number`: 0 is the command, 1 the master, 2 node-0, ..."""
        return Endpoint(self.host, self.port + number if self.port else 0)

    def check(self) -> None:
        """Raise Unavailable if no socket can listen here now."""
        try:
            listen_tcp(self.host, self.port).close()
        except OSError as error:
            raise Unavailable(self.fault(error)) from None

    def fault(self, error: OSError) -> str:
        """Return an error text that explains why this endpoint cannot be used."""
        return f"cannot serve metrics at {self.host}:{self.port}: {error.strerror or error}"


def check_ports(text: str, processes: int) -> None:
    """Check the ports of all processes of a run; warn if other machines can reach them.

    Raises FlowError for a wrong address, Unavailable for a port in use.
    """
    endpoint = Endpoint.parse(text, processes)
    for number in range(processes if endpoint.port else 1):
        endpoint.of_child(number).check()
    if not is_local(f"tcp://{endpoint.host}:{endpoint.port}"):
        log.warning(
            "other machines can read the metrics at %s: names, numbers and the state of the run, "
            "but no records and no keys",
            text,
            extra=event_fields("metrics-open", address=text),
        )


def port_file_path(sockets: str, role: str, index: int = 0) -> Path:
    """Return the file with the port of a process of this role; `sockets`: as in its config."""
    return Path(sockets) / f"metrics-{role}-{index}"


def write_port_file(path: Path, port: int) -> None:
    """Write a port to its file. Raises OSError."""
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(str(port))
    draft.replace(path)


def read_port_file(path: Path) -> int:
    """Return the port in the file; 0: none."""
    try:
        port = int(path.read_text())
    except (OSError, ValueError):
        return 0
    return port if 0 < port <= PORT_MAX else 0
