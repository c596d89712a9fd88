"""Networks of two hosts on this machine, over TCP with keys.

One host has the master and the nodes; the other one, the test, has the front and the consumer.
"""

from __future__ import annotations

import socket
from pathlib import Path

from driftline.deploy.runtime.sockets.keys import (
    CONSUMER,
    HOST_ROLE_PATTERNS,
    Rights,
    host_rights,
    make_keys,
)
from driftline.deploy.runtime.sockets.transport import TransportConfig
from driftline.engine.wire.addresses import Address

_NODES, _ENDS = "nodes", "ends"


def networks(directory: Path) -> tuple[TransportConfig, TransportConfig]:
    """Return the networks of the nodes and the master, and of this process."""
    keys = directory / "keys"
    ends = Rights((*HOST_ROLE_PATTERNS, CONSUMER), sinks=("*",))
    made = make_keys(keys, [(_NODES, host_rights()), (_ENDS, ends)])
    public = {key.name: key.public for key in made}
    at = [f"tcp://127.0.0.1:{port}" for port in _free_ports(2)]
    known = (
        ("master", str(Address(at[0], public[_NODES]))),
        (CONSUMER, str(Address(at[1], public[_ENDS]))),
    )
    nodes, here = (
        TransportConfig("tcp", keys=str(keys / f"{name}.key"), known=known) for name in public
    )
    return nodes, here


def _free_ports(count: int) -> list[int]:
    """Return free ports; all are bound until all are known."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
