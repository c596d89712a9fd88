"""Ports that processes choose themselves: each notes its port in a file, beside the sockets of its
run.

So those who look after a process know where it serves, whatever it logs; and the next process of
its role tries the same port first, as Prometheus looks for new ones but seldom.
"""

from __future__ import annotations

import os
from pathlib import Path

from driftline.deploy.host.metrics.endpoint import PORT_MAX


def port_note(sockets: str, role: str, index: int = 0) -> Path:
    """The file in which a process of this role notes its port; `sockets`: as in its config."""
    return Path(sockets) / f"metrics-{role}-{index}"


def note_port(path: Path, port: int) -> None:
    """Note a port. Raises OSError."""
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(str(port))
    draft.replace(path)


def noted_port(path: Path) -> int:
    """The port that is noted; 0: none."""
    try:
        port = int(path.read_text())
    except (OSError, ValueError):
        return 0
    return port if 0 < port <= PORT_MAX else 0
