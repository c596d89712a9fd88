"""The network of a measured Driftline: how this process and the nodes reach each other.

By `tcp://` all is on the loopback of this machine. With keys it is as between two hosts: one has
the master and the nodes, the other one, this process, the front and the consumer.
"""

from __future__ import annotations

import socket
from pathlib import Path

from driftline.bench.systems.cases import IPC, TCP_CURVE
from driftline.deploy.host.sockets.transport import Network
from driftline.deploy.keys.keyset import make_keys
from driftline.deploy.keys.rights import CONSUMER, HOST_NAMES, Rights, host_rights
from driftline.engine.wire.addresses import Address

_NODES, _ENDS = "nodes", "ends"


def networks(transport: str, directory: Path) -> tuple[Network, Network]:
    """The networks of the nodes and the master, and of this process."""
    if transport == IPC:
        return Network(), Network()
    public = {_NODES: "", _ENDS: ""}
    keys = directory / "keys"
    if transport == TCP_CURVE:
        ends = Rights((*HOST_NAMES, CONSUMER), sinks=("*",))
        made = make_keys(keys, [(_NODES, host_rights()), (_ENDS, ends)])
        public = {key.name: key.public for key in made}
    at = [f"tcp://127.0.0.1:{port}" for port in _free_ports(2)]
    known = (
        ("master", str(Address(at[0], public[_NODES]))),
        (CONSUMER, str(Address(at[1], public[_ENDS]))),
    )
    files = [str(keys / f"{name}.key") if public[name] else "" for name in public]
    nodes, here = (Network("tcp", keys=file, known=known) for file in files)
    return nodes, here


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens at; all are held until all are known."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
