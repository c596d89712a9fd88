"""Transport of a process: the addresses of its roles, and the keys that identify peers.

Processes of one machine use `ipc://`, or `tcp://` on the loopback interface. Connections between
machines use CURVE: each side proves its key, and speaks only for the names of that key. This holds
in both directions. The ZAP handler (`zap`) checks each incoming connection. A process sends nothing
to an address whose key may not speak for the intended role, and sends outputs only to a consumer
with a right to all their sinks.

From a stranger, ZeroMQ accepts only the handshake, within `HANDSHAKE_MS` and in frames of at most
`PART_BYTES`. After the handshake, the connection is a member's: windows bound its data in flight,
and `MESSAGE_BYTES_MAX` bounds a message. ZeroMQ applies the same limit to frames before and after
the handshake, so a large message has several parts. The limit of file descriptors also bounds the
number of connections.
"""

from __future__ import annotations

import gc
import resource
from contextlib import suppress
from pathlib import Path
from typing import Literal

import zmq
from msgspec import Struct

from driftline.deploy.runtime.sockets.keys import CONSUMER, HOST, Authorised, KeyPair, own_key
from driftline.deploy.runtime.sockets.listening import is_local
from driftline.deploy.runtime.sockets.zap import MEMBERS
from driftline.engine.errors import NotPermitted, Unavailable
from driftline.engine.wire.addresses import Address, parse

MESSAGE_BYTES_MAX = 1 << 28
"""Largest message between hosts."""

PART_BYTES = 1 << 16
"""Largest part of a message between hosts: a stranger cannot make ZeroMQ allocate more at once."""

CURVE_BYTES = 64
"""Largest overhead of CURVE per message."""

HANDSHAKE_MS = 5_000
"""Timeout of a handshake."""

HEARTBEAT_MS, DEAD_AFTER_MS = 1_000, 10_000
"""Probe interval and timeout of a connection: a machine that vanishes closes no connection."""

KEEPALIVE_S = 60
"""Silence in seconds after which the kernel probes the other machine."""

RECONNECT_MS, RECONNECT_MS_MAX = 50, 1_000
"""Pause before a reconnect; it doubles up to the second value."""

Scheme = Literal["ipc", "tcp"]


class Transport(Struct, frozen=True):
    """Transport of the roles of a process; by default within this machine, over `ipc://`.

    `bind`: HOST or HOST:PORT to listen at, by default at a free port; `advertise`: HOST or
    HOST:PORT for other processes to connect to, by default the same; `own`, `authorised`: the key
    of this process, and all authorised keys; `sinks`: names of the sinks whose outputs this process
    sends to a consumer.
    """

    scheme: Scheme = "ipc"
    bind: str = "127.0.0.1"
    advertise: str = ""
    own: KeyPair | None = None
    authorised: Authorised | None = None
    sinks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert (self.own is None) is (self.authorised is None), "give both keys or none"

    def check_listener(self, name: str, endpoint: str) -> None:
        """Raise NotPermitted if role `name` must not listen at this endpoint."""
        if self.own is not None:
            if not self.own.rights.may_send_as(name):
                holder = self.own.rights.holder_kind
                hint = "" if holder == HOST else f": it belongs to a {holder}; give that of a host"
                raise NotPermitted(f"the key {self.own.name} does not speak for {name}{hint}")
        elif endpoint.startswith("tcp://") and not is_local(endpoint):
            raise NotPermitted(
                f"{name} cannot listen on {endpoint} without keys: other machines can connect to "
                "it. Make keys with `driftline keys`, or listen on 127.0.0.1"
            )

    def resolve_advertised(self, bound: str) -> str:
        """Return the address that other processes connect to.

        `bound`: the endpoint at which the role listens. Raises Unavailable if it is a wildcard such
        as 0.0.0.0, and `advertise` is not set.
        """
        if not bound.startswith("tcp://"):
            return bound
        host, port = _split(bound.removeprefix("tcp://"))
        if self.advertise:
            host, advertised_port = _split(self.advertise)
            port = advertised_port or port
        if host in ("0.0.0.0", "[::]", "*"):
            raise Unavailable(
                f"{bound} stands for every address of this machine: name the one that others "
                "connect to (advertise)"
            )
        return str(Address(f"tcp://{host}:{port}", self.own.public if self.own else ""))

    def resolve_peer(self, address: str, to: str) -> Address:
        """Parse the address of role `to`, and check whether this process may connect to it.

        Raises MalformedMessage for a text that is not an address. Raises NotPermitted if the
        address has no key with a right to the role (for a consumer, to all `sinks`), or if this
        process has no keys and the address is one of another machine, or has a key.
        """
        peer = parse(address)
        if peer.endpoint.startswith("inproc://"):
            return peer
        if self.own is None or self.authorised is None:
            if peer.public_key or not is_local(peer.endpoint):
                raise NotPermitted(f"{to} is at {peer.endpoint}, and this process has no keys")
            return peer
        if not peer.public_key:
            raise NotPermitted(f"{to} is at {peer.endpoint}, without a key")
        entry = self.authorised.find_key(peer.public_key)
        if entry is None:
            raise NotPermitted(f"{to} is at {peer.endpoint}, with a key that is not authorised")
        name, rights = entry
        if not rights.may_send_as(to):
            raise NotPermitted(f"{to} is at {peer.endpoint}, but the key {name} is not for {to}")
        if to == CONSUMER and not rights.may_take(self.sinks):
            raise NotPermitted(f"the key {name} has no right to all of {', '.join(self.sinks)}")
        return peer

    def configure_connecting(self, socket: zmq.Socket[bytes], peer: Address) -> None:
        """Prepare a socket to connect to an address that `resolve_peer` returned."""
        if peer.endpoint.startswith("tcp://"):
            _tune(socket)
        if peer.public_key and self.own is not None:
            become_client(socket, self.own, peer.public_key)

    def configure_listening(self, socket: zmq.Socket[bytes], endpoint: str) -> None:
        """Prepare a socket to listen; with keys, it accepts only connections of members."""
        if self.own is not None:
            raise_descriptor_limit()
            become_server(socket, self.own, MEMBERS)
            socket.setsockopt(zmq.MAXMSGSIZE, PART_BYTES + CURVE_BYTES)
        if endpoint.startswith("tcp://"):
            _tune(socket)


def raise_descriptor_limit() -> None:
    """Raise the soft limit of file descriptors, and so of connections, to the hard limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def destroy_context(context: zmq.Context[zmq.Socket[bytes]], linger_ms: int) -> None:
    """Close all sockets of a context, and release it. `linger_ms`: see `zmq.Context.destroy`.

    The context does not know a socket whose creation a signal has interrupted, and the frames of
    the exception keep that socket open. `zmq.Context.destroy` would wait for it for ever.
    """
    for each in gc.get_objects():
        if issubclass(type(each), zmq.Socket) and each.context is context and not each.closed:
            each.close(linger_ms)
    context.destroy(linger=linger_ms)  # and sockets that `gc.freeze` hides


def become_server(socket: zmq.Socket[bytes], key: KeyPair, domain: str) -> None:
    """Make a socket accept only connections with keys that the ZAP handler admits to the domain."""
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt_string(zmq.CURVE_SECRETKEY, key.secret)
    socket.setsockopt_string(zmq.ZAP_DOMAIN, domain)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without a handler, all connections are rejected
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)


def become_client(socket: zmq.Socket[bytes], key: KeyPair, public: str) -> None:
    """Make a socket connect with a key to the peer that has this public key."""
    socket.setsockopt_string(zmq.CURVE_SERVERKEY, public)
    socket.setsockopt_string(zmq.CURVE_PUBLICKEY, key.public)
    socket.setsockopt_string(zmq.CURVE_SECRETKEY, key.secret)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)


def _tune(socket: zmq.Socket[bytes]) -> None:
    """Make a socket detect dead connections and reconnect."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, DEAD_AFTER_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, DEAD_AFTER_MS)
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_S)


class TransportConfig(Struct, frozen=True):
    """Transport of a run as its processes receive it: without a secret."""

    scheme: Scheme = "ipc"
    bind: str = "127.0.0.1"
    advertise: str = ""
    keys: str = ""
    """File or directory of the key of this process; "" without keys."""
    known: tuple[tuple[str, str], ...] = ()
    """(name, address) of roles whose addresses are known before they send Hello."""

    def transport(self, sinks: tuple[str, ...] = ()) -> Transport:
        """Return the transport of a process, with its keys. Raises NotPermitted, Unavailable."""
        if self.scheme == "ipc":
            return Transport()
        if not self.keys:
            return Transport(self.scheme, self.bind, self.advertise)
        own, all_keys = own_key(Path(self.keys)), self.authorised()
        return Transport(self.scheme, self.bind, self.advertise, own, all_keys, sinks)

    def endpoint(self, port: int) -> str:
        """Return the endpoint to listen at with a port. Precondition: the scheme is `tcp`."""
        return f"tcp://{_split(self.bind)[0]}:{port}"

    def authorised(self) -> Authorised:
        """Return all authorised keys. Raises NotPermitted, Unavailable. Precondition: `keys` is
        set."""
        path = Path(self.keys)
        return Authorised(path if path.is_dir() else path.parent)

    def address(self, name: str, sockets: str) -> str:
        """Return the address of a role: a `known` one, or with `ipc` its socket in the folder
        `sockets`. Precondition: with `tcp`, the address is known."""
        known_addresses = dict(self.known)
        if name in known_addresses or self.scheme == "tcp":
            return known_addresses[name]
        return f"ipc://{sockets}/{name}"

    def inbox(self, name: str, sockets: str) -> str:
        """Return the address for a role to listen at; the port `*` stands for any free port."""
        known_address = dict(self.known).get(name)
        if self.scheme == "ipc":
            return known_address or f"ipc://{sockets}/{name}"
        host, port = _split(self.bind)
        if known_address is not None:
            port = _split(parse(known_address).endpoint)[1]
        return f"tcp://{host}:{port or '*'}"


LOCAL = TransportConfig()


def _split(netloc: str) -> tuple[str, str]:
    """Return host, with the brackets of IPv6, and port; the port is empty if absent."""
    host, colon, port = netloc.rpartition(":")
    return (host, port) if colon and not port.endswith("]") else (netloc, "")
