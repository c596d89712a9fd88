"""Listening addresses for producers: `tcp://HOST:PORT` and `ipc://PATH`."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from driftline.engine.errors import Unavailable

BACKLOG = 128
"""Connections that the kernel queues until they are accepted."""

_ANY = "*"


def is_local(address: str) -> bool:
    """Return whether only programs of this machine can connect to an address."""
    if address.startswith("ipc://"):
        return True
    host = _host_and_port(address)[0]
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def fault_of(address: str) -> str:
    """Return the syntax error of an address; "" if it is valid."""
    if address.startswith("ipc://"):
        return "" if address != "ipc://" else "it has no path"
    if not address.startswith("tcp://"):
        return "unknown kind of address: it has to begin with tcp:// or ipc://"
    port = _host_and_port(address)[1]
    if port == _ANY or (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        return ""
    return "it needs a port from 0 to 65535, as in tcp://127.0.0.1:5555"


def listen(address: str) -> socket.socket:
    """Return a socket that listens at an address for producers. Raises Unavailable."""
    if fault := fault_of(address):
        raise _unusable(address, fault)
    try:
        if address.startswith("tcp://"):
            host, port = _host_and_port(address)
            return listen_tcp(host, 0 if port == _ANY else int(port))
        return _listen_unix(address.removeprefix("ipc://"))
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            reason += "; is it in use by another run?"
        elif error.errno == errno.EADDRNOTAVAIL:
            reason += "; this host has no such address"
        raise _unusable(address, reason) from None


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """Return the family and the address of a socket that is to listen at a host and port.

    Prefers IPv4. The host `*` or "" stands for all IPv4 interfaces. Raises OSError if the host does
    not resolve.
    """
    any_host = "0.0.0.0" if host in (_ANY, "") else host
    try:
        addresses = socket.getaddrinfo(
            any_host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except UnicodeError:
        raise OSError("this is not a valid host name") from None
    family, _, _, _, address = sorted(addresses, key=lambda each: each[0])[0]  # IPv4 first
    return family, address


def listen_tcp(host: str, port: int) -> socket.socket:
    """Return a socket that listens at a host and port. Raises OSError."""
    family, address = resolve(host, port)
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def bound_to(listener: socket.socket) -> str:
    """Return the address at which a socket listens, with its port."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        path = os.fsdecode(name)
        return f"ipc://{'@' + path[1:] if path.startswith(chr(0)) else path}"
    host = f"[{name[0]}]" if listener.family == socket.AF_INET6 else name[0]
    return f"tcp://{host}:{name[1]}"


def file_of(address: str) -> Path | None:
    """Return the file of an `ipc://` address; None: the address has no file."""
    path = address.removeprefix("ipc://")
    return None if path == address or path.startswith("@") else Path(path)


def check_free(address: str) -> None:
    """Raise Unavailable unless a socket can listen at an address now."""
    file = file_of(address)
    listen(address).close()
    if file is not None:
        file.unlink(missing_ok=True)


def _unusable(address: str, reason: str) -> Unavailable:
    return Unavailable(f"cannot listen for producers on {address}: {reason}")


def _host_and_port(address: str) -> tuple[str, str]:
    """Return host and port; the port is empty if absent, as in tcp://[::1] and tcp://127.0.0.1."""
    netloc = address.partition("://")[2]
    host, colon, port = netloc.rpartition(":")
    if not colon or port.endswith("]"):
        return netloc.removeprefix("[").removesuffix("]"), ""
    return host.removeprefix("[").removesuffix("]"), port


def _listen_unix(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.startswith("@"):
            path = chr(0) + path[1:]
        else:
            _remove_stale_socket(path)
        listener.bind(path)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _remove_stale_socket(path: str) -> None:
    """Remove the file of a socket at which no process listens any more."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                Path(path).unlink()
