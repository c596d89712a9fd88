"""Socket monitors: events that ZeroMQ reports about the connections of a socket.

`zmq.utils.monitor` is not used because it imports asyncio, which would delay a recovery.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from socket import getaddrinfo

import zmq

from driftline.engine.errors import MalformedMessage, NotPermitted
from driftline.engine.wire.addresses import host_of, parse

_EVENT = struct.Struct("=Hi")

_HANDSHAKE_EVENTS = (
    zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_SUCCEEDED
)


class Monitor:
    """Reader of the events of a socket.

    All monitors use the same address, so a context can have only one monitored socket.
    """

    def __init__(self, socket: zmq.Socket[bytes], events: int) -> None:
        self._watched = socket
        address = "inproc://monitor"
        socket.monitor(address, events)
        self._socket = socket.context.socket(zmq.PAIR)
        self._socket.set_hwm(0)  # a full queue of unread events would block ZeroMQ's thread
        self._socket.connect(address)

    def events(self) -> Iterator[tuple[int, int]]:
        """Yield the (event, value) pairs since the last call."""
        while self._socket.poll(0):
            event, value = _EVENT.unpack(self._socket.recv_multipart()[0])
            yield event, value

    def close(self) -> None:
        """Stop monitoring.

        Call this before closing the watched socket. Otherwise ZeroMQ's thread would block on an
        event without a reader.
        """
        if not self._watched.closed:
            self._watched.disable_monitor()
            self._socket.close(linger=0)


class ConnectionMonitor(Monitor):
    """Counter of the open connections that a listening socket has accepted."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        super().__init__(socket, int(zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED))
        self._descriptors: set[int] = set()

    def count(self) -> int:
        """Return the number of open connections."""
        for event, descriptor in self.events():
            if event == zmq.EVENT_ACCEPTED:
                self._descriptors.add(descriptor)
            else:
                self._descriptors.discard(descriptor)
        return len(self._descriptors)


class HandshakeMonitor(Monitor):
    """Detector of failed handshakes of a socket that connects to one address.

    Calls of a socket do not raise after a failed handshake. If the server rejects the key, or only
    one side has keys, ZeroMQ does not even retry: the socket never connects.
    """

    def __init__(self, socket: zmq.Socket[bytes], address: str, key: str = "") -> None:
        """`key`: the name of the socket's key; "" if it has none."""
        super().__init__(socket, int(_HANDSHAKE_EVENTS))
        self._address = address
        self._key = key
        self.hint = ""
        """Possible reason for missing answers, to append to an error: "; ..."; empty if unknown."""

    def check(self) -> None:
        """Raise NotPermitted if no handshake with the server can succeed. Update `hint`."""
        for event, value in self.events():
            if event == zmq.Event.HANDSHAKE_SUCCEEDED:
                self.hint = ""
            elif event == zmq.Event.HANDSHAKE_FAILED_AUTH:
                raise NotPermitted(
                    f"{self._address} rejected the key {self._key}: is the key authorised there, "
                    "with a right to this source?"
                )
            elif value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
                raise NotPermitted(
                    f"{self._address} does not use keys: leave out keys="
                    if self._key
                    else f"{self._address} requires a key: give keys=, a file that "
                    "`driftline keys` has made"
                )
            else:  # the other side disconnected before it sent the reason
                self.hint = "; its handshakes fail: " + (
                    "is your copy of the server's public key correct?"
                    if self._key
                    else "does the server require a key (keys=)?"
                )


def resolution_error(endpoint: str) -> str:
    """Return a text to append to an error if the endpoint's host does not resolve, or else "".

    ZeroMQ does not report hosts that do not resolve.
    """
    try:
        address = parse(endpoint).endpoint
    except MalformedMessage:
        return ""
    if address.startswith("tcp://"):
        try:
            getaddrinfo(host_of(address), None)
        except OSError as error:
            return f"; cannot resolve host {host_of(address)!r}: {error.strerror or error}"
    return ""
