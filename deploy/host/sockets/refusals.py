"""Refusals: why ZeroMQ shakes no hands with a server, in words for the one who connects.

A socket says nothing of a handshake that fails. If the server has refused the key, or one side has
keys and the other has none, ZeroMQ does not even try again: the socket is dead. Its monitor tells.
"""

from __future__ import annotations

from socket import getaddrinfo

import zmq

from driftline.deploy.host.guarding.monitored import happened
from driftline.engine.errors import MalformedMessage, NotPermitted
from driftline.engine.wire.addresses import host_of, parse

_FAILED = (
    zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_SUCCEEDED
)


def unresolved(endpoint: str) -> str:
    """That the host of an endpoint has no address, which ZeroMQ does not tell; "" if it has one."""
    try:
        where = parse(endpoint).endpoint
    except MalformedMessage:
        return ""
    if where.startswith("tcp://"):
        try:
            getaddrinfo(host_of(where), None)
        except OSError as error:
            return f"; {host_of(where)!r} is the name of no host here: {error.strerror or error}"
    return ""


class Refusals:
    """The failed handshakes of a socket that connects to one address, alone in its context."""

    def __init__(self, socket: zmq.Socket[bytes], address: str, key: str = "") -> None:
        """`key`: the name of the key that the socket has; "" if it has none."""
        self._socket = socket
        where = "inproc://handshakes"  # of this context alone, which has one such socket
        socket.monitor(where, int(_FAILED))
        self._monitor = socket.context.socket(zmq.PAIR)
        self._monitor.set_hwm(0)  # else ZeroMQ's thread would wait for a reader that is away
        self._monitor.connect(where)
        self._address = address
        self._key = key
        self.hint = ""
        """What may be the reason that nothing is heard; begins with a space."""

    def check(self) -> None:
        """Raises NotPermitted if the server will never shake hands."""
        while self._monitor.poll(0):
            event, value = happened(self._monitor.recv_multipart())
            if event == zmq.Event.HANDSHAKE_SUCCEEDED:
                self.hint = ""
            elif event == zmq.Event.HANDSHAKE_FAILED_AUTH:
                raise NotPermitted(
                    f"{self._address} refused the key {self._key}: is it authorised there, with a "
                    "right to this source?"
                )
            elif value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
                raise NotPermitted(
                    f"{self._address} has no keys, and takes none: leave keys= away"
                    if self._key
                    else f"{self._address} wants a key: give keys=, a file that `driftline keys` "
                    "has made"
                )
            else:  # the other side was faster to hang up than to say why
                self.hint = "; its handshakes fail: " + (
                    "is the public key that you have that of its host?"
                    if self._key
                    else "does it want a key (keys=)?"
                )

    def close(self) -> None:
        """Listen no more. It has to be called before the socket is closed: ZeroMQ's thread must not
        tell somebody who is gone, as it would wait for him."""
        if not self._socket.closed:
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
