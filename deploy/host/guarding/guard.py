"""The guard: stands between strangers and a ZeroMQ socket, and lets pass what ZeroMQ can bear.

ZeroMQ keeps all parts of a message until its last one has come, counts messages and not bytes, and
accepts connections until the process has no descriptors left. So it listens at a private address
only, and this guard at the public one. For each connection the guard opens one to ZeroMQ, and
passes bytes in both directions. It looks at the framing of what comes (`zmtp`), and closes a
connection, with a line in the log, that breaks a rule of it, is slow to shake hands or to finish a
frame, or does not read what it is sent.

With keys, a connection counts as a stranger's until ZeroMQ has answered its handshake with READY,
which it does once the ZAP handler knows the key: before, nothing but short commands passes. What
comes then is sealed, but framed as before. Members of a run do not come this way (`door`).

Bounds: `connections_max` connections; if there are more, the one that has been silent longest goes,
or the new one. `SMALL_BYTES` in small messages and `LARGE_BYTES` in large ones that the owner of
the socket has not taken yet; a connection that wants to send more is not read. Small messages do
not wait for large ones. The socket itself must have no high-water mark for what it receives: libzmq
4.3.5 aborts the process if a connection with heartbeats breaks off while that mark holds it up
(https://github.com/zeromq/libzmq/issues/4767).

It is a thread with a loop of asyncio, as the loop of the process may be busy. `took` and `emptied`
are called by the thread of the socket's owner, everything else happens in the thread of the guard.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from time import monotonic

from driftline.deploy.host.guarding.budget import Budget
from driftline.deploy.host.guarding.connection import Connection
from driftline.deploy.host.guarding.descriptors import raise_limit
from driftline.deploy.host.guarding.listening import BACKLOG, bound_to, listen, release
from driftline.deploy.host.threads import ThreadDied
from driftline.deploy.parties.seldom import Seldom

CONNECTIONS_MAX = 500
"""Connections at a time, by default."""

HANDSHAKE_S = 5.0
"""How long a handshake may take."""

FRAME_S = 30.0
"""How long a frame may take that has begun."""

SMALL = 1 << 16
"""Bytes of a message that counts as small."""

SMALL_BYTES = 1 << 24
"""Bytes of small messages that ZeroMQ may hold."""

LARGE_BYTES = 1 << 25
"""Bytes of large messages that ZeroMQ may hold, those included that have only begun."""

EACH_BYTES = 1 << 12
"""What ZeroMQ may need for a small message besides its bytes: the buffer in which it came."""

SEALED_BYTES = 33
"""What CURVE adds to a message: its name, a number, a checksum, and the flags."""

LOOK_S = 0.25
"""How often connections are looked at."""

ROOM_S = 0.002
"""How often a connection that waits for room is looked at."""

_DESCRIPTORS = 3
"""Descriptors of a connection: the peer's, ours to ZeroMQ, and that of ZeroMQ."""

_OTHER_DESCRIPTORS = 256


class Guard:
    """A guard, which listens once it is made. Raises Unavailable if its address cannot be used."""

    def __init__(
        self,
        address: str,
        inside: str,
        *,
        name: str,
        message_bytes_max: int,
        connections_max: int = CONNECTIONS_MAX,
        handshake_s: float = HANDSHAKE_S,
        frame_s: float = FRAME_S,
        keyed: bool = False,
    ) -> None:
        """`address`: the public one; `inside`: the path of the Unix socket on which ZeroMQ
        listens; `message_bytes_max`: the largest message that passes; `keyed`: ZeroMQ lets in only
        who has a key."""
        self._listener = listen(address)
        self.address = bound_to(self._listener)
        self.inside = inside
        self.message_bytes_max = message_bytes_max
        self.handshake_s = handshake_s
        self.frame_s = frame_s
        self.connections_max = min(connections_max, _descriptors(connections_max))
        self.keyed = keyed
        self.small = Budget(SMALL_BYTES, EACH_BYTES)
        self.large = Budget(LARGE_BYTES)
        self.buffer = memoryview(bytearray(SMALL))
        """Where all connections read, one at a time."""
        self._connections: dict[Connection, None] = {}
        """All connections, the oldest first."""
        self._silent: dict[Connection, None] = {}
        """Those that have not sent a whole message."""
        self._waiting: dict[Connection, None] = {}
        """Those that wait for room."""
        self._closed = Seldom("connection-closed", f"{name} closed a connection")
        self._troubled = Seldom("connection-failed", f"{name} cannot take a connection")
        self._died: ThreadDied | None = None
        self._wait_s = 0.0
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._failed)
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"guard of {name}", daemon=True)
        self._thread.start()

    # For the owner of the socket.

    def took(self, size: int) -> None:
        """The owner has taken a message of so many bytes."""
        size += SEALED_BYTES if self.keyed else 0
        self.budget(size).take(size)

    def emptied(self) -> None:
        """The owner has found no message."""
        self.small.empty_at = self.large.empty_at = monotonic()

    @property
    def connected(self) -> int:
        """Connections that have sent a whole message."""
        return len(self._connections) - len(self._silent)

    def check(self) -> None:
        """Raises ThreadDied if the guard cannot go on."""
        if self._died is not None:
            raise self._died

    def close(self, wait_s: float = 0.5) -> None:
        """Release the address. Precondition: the socket is closed; what it has sent is sent on."""
        self._wait_s = wait_s
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(timeout=wait_s + 5)
        release(self._listener)

    # For connections.

    def budget(self, size: int) -> Budget:
        """The budget for messages of this size."""
        return self.small if size <= SMALL else self.large

    def joined(self, connection: Connection) -> None:
        """Keep a new connection, for which an older one may have to go; or close it."""
        if len(self._connections) >= self.connections_max:
            if not self._silent:
                connection.refuse(f"all {self.connections_max} connections are in use")
                return
            oldest = next(iter(self._silent))
            oldest.refuse(f"it has sent nothing, and {self.connections_max} are too many")
        self._connections[connection] = self._silent[connection] = None

    def spoke(self, connection: Connection) -> None:
        """A connection has sent a whole message; with keys, its key is good."""
        self._silent.pop(connection, None)

    def waits(self, connection: Connection) -> None:
        """A connection waits until there is room for its next message."""
        if not self._waiting:
            self._loop.call_later(ROOM_S, self._look_for_room)
        self._waiting[connection] = None

    def left(self, connection: Connection) -> None:
        """A connection is closed."""
        for group in (self._connections, self._silent, self._waiting):
            group.pop(connection, None)

    def closed(self, peer: str, reason: str) -> None:
        """Log why a connection was closed."""
        self._closed.add(monotonic(), f"{reason} ({peer})")

    def troubled(self, error: OSError) -> None:
        """Log that a connection cannot be taken, for example for want of descriptors."""
        self._troubled.add(monotonic(), error.strerror or str(error))

    # The thread.

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self._died = self._died or ThreadDied.of(error, "the guard")
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server: asyncio.Server
        if self._listener.family == socket.AF_UNIX:
            server = await self._loop.create_unix_server(
                self._connection, sock=self._listener.dup(), backlog=BACKLOG
            )
        else:
            server = await self._loop.create_server(
                self._connection, sock=self._listener.dup(), backlog=BACKLOG
            )
        self._look()
        await self._closing.wait()
        server.close()
        until = monotonic() + self._wait_s
        while self._connections and monotonic() < until:
            await asyncio.sleep(0.005)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)
        self._closed.close()
        self._troubled.close()

    def _connection(self) -> Connection:
        return Connection(self, self._loop)

    def _look(self) -> None:
        """Close connections that are too slow, and forget messages that were lost."""
        now = monotonic()
        for connection in list(self._connections):
            connection.look(now)
        for budget in (self.small, self.large):
            budget.settle(now)
        self._closed.tell(now)
        self._troubled.tell(now)
        self._loop.call_later(LOOK_S, self._look)

    def _look_for_room(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for connection in waiting:
            connection.go_on()

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """A callback has failed: for want of descriptors, or of memory; or because of an error."""
        error = context.get("exception")
        if isinstance(error, OSError):
            self.troubled(error)
        elif self._died is None:
            cause = error if isinstance(error, BaseException) else RuntimeError(context["message"])
            self._died = ThreadDied.of(cause, "the guard")
            self._closing.set()


def _descriptors(connections: int) -> int:
    """For how many connections there are descriptors, after the limit was raised as far as it goes.

    Without descriptors a run cannot open its own files.
    """
    limit = raise_limit(_DESCRIPTORS * connections + _OTHER_DESCRIPTORS)
    if limit is None:
        return connections
    return max(1, (limit - _OTHER_DESCRIPTORS) // _DESCRIPTORS)
