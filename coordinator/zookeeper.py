"""ZooKeeper: the registry in one znode, and the leader election.

The election is a queue with one ephemeral sequential znode per master.

A write of the registry replaces exactly the version of the znode that was read before it, so only
one of two masters can continue, however late a request arrives. A ZooKeeper server may lag behind
the others; therefore a `sync` precedes each read of the registry, and each read of the queue by a
master. A request that is lost with its connection, or that times out, raises `Unavailable`, but may
have succeeded. So the retry is marked (`again`), and if the stored value equals the value to write,
the write has succeeded.

The znodes of masters (`leadership.py`) disappear with their sessions. ZooKeeper numbers them in
order of arrival. The name of a znode is PROCESS-NUMBER, where PROCESS is the token of the master's
process; its data is the address of that master. `LeaderQueue` has two callbacks. Watches fire once,
so a client thread calls `changed` at most once per query of the queue that set a watch. The thread
also calls `changed` after a reconnect, since a watch may be lost, and `expired` when the session is
over.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from time import monotonic

from kazoo import exceptions as errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import KazooState, KeeperState, WatchedEvent

from driftline.coordinator.leadership import Enlist, FindPredecessor, FindSuccessor
from driftline.coordinator.registry import ClusterState, decode_state, encode_state, may_replace
from driftline.engine.errors import Disconnected, PayloadError, StateMismatch, Unavailable
from driftline.engine.events import FailureLog, event_fields, log
from driftline.engine.wire.role import IOJob

ANSWER_TIMEOUT_S = 10.0
"""Timeout of a request, in seconds."""

CONNECT_TIMEOUT_S = 10.0
"""Timeout of a new client's connection, in seconds."""

RECONNECT_PAUSE_MAX_S = 1.0
"""The longest pause before a client reconnects, in seconds."""

DATA_BYTES_MAX = (1 << 20) - 4096
"""Maximum size of a znode's data. ZooKeeper accepts requests of less than 1 MiB
(`jute.maxbuffer`); 4 KiB are for the path."""

REASONS = (
    (errors.ConnectionClosedError, "the connection is closed"),
    (errors.SessionExpiredError, "the session has expired"),
    (errors.ConnectionLoss, "the connection was lost"),
    (errors.OperationTimeoutError, "the servers took too long"),
    (errors.RequestTimeoutError, "the servers took too long"),
    (errors.NotReadOnlyCallError, "the server has lost its quorum and is read-only"),
    (errors.AuthFailedError, "the servers reject this client's credentials"),
    (errors.NoAuthError, "not permitted by the access list of the znode"),
    (errors.NoNodeError, "the znode was removed meanwhile"),
)
"""Human-readable reasons of a failed request; the first match counts."""

LOSSES = (errors.ConnectionLoss, errors.ConnectionClosedError, errors.SessionExpiredError)
"""Errors of a lost connection or session, which `_ConnectionLog` already logs."""

CONFLICTS = (errors.BadVersionError, errors.NodeExistsError, errors.NoNodeError)
"""Errors of a write if another client has written, created or removed the znode since the read."""

_DIGITS = 10
"""Digits of the number that ZooKeeper appends to a name."""

_NAME = re.compile(rf".+-[0-9]{{{_DIGITS}}}")


class ZooKeeperRegistry:
    """Registry in a znode. The caller connects and closes the client.

    `answer_s`: timeout of a request.
    """

    def __init__(
        self, client: KazooClient, path: str, *, answer_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self._client = client
        self._path = path
        self._answer_s = answer_s
        servers = servers_of(client)
        self._location = f"{client.chroot}{path} in ZooKeeper at {servers}"

    def read(self) -> ClusterState | None:
        return self._decoded(self._read_newest()[0])

    def write(self, state: ClusterState, *, again: bool = False) -> None:
        data = encode_state(state)
        if len(data) > DATA_BYTES_MAX:
            raise PayloadError(
                f"registry {self._location}: the state has {len(data):,} bytes, and ZooKeeper "
                f"stores at most {DATA_BYTES_MAX:,}: use fewer nodes or fewer operators"
            )
        stored, version = self._read_newest()
        if not may_replace(state, self._decoded(stored), again=again):
            raise self._taken_over_error()
        if stored == data:
            return  # written by the earlier attempt
        try:
            self._replace(version, data)
        except CONFLICTS:
            # Either the earlier attempt has only now arrived, or another master has written.
            if not again or self._read_newest()[0] != data:
                raise self._taken_over_error() from None

    def _read_newest(self) -> tuple[bytes | None, int]:
        """Return the newest data of the znode and its version; (None, -1) without a znode."""
        with self._translated_errors():
            self._client.sync_async(self._path).get(timeout=self._answer_s)
            try:
                data, stat = self._client.get_async(self._path).get(timeout=self._answer_s)
            except errors.NoNodeError:
                return None, -1
            return data, stat.version

    def _replace(self, version: int, data: bytes) -> None:
        """Replace this version of the znode; -1: create it. Raises CONFLICTS, Unavailable."""
        with self._translated_errors(CONFLICTS):
            if version < 0:
                pending = self._client.create_async(self._path, data, makepath=True)
            else:
                pending = self._client.set_async(self._path, data, version)
            pending.get(timeout=self._answer_s)

    def _decoded(self, data: bytes | None) -> ClusterState | None:
        return None if data is None else decode_state(data, self._location)

    def _taken_over_error(self) -> StateMismatch:
        return StateMismatch(
            f"registry {self._location}: it was written by another master or a `cancel`"
        )

    def _translated_errors(
        self, passed_through: tuple[type[Exception], ...] = ()
    ) -> AbstractContextManager[None]:
        what = f"registry {self._location}"
        return translated_errors(self._client, what, self._answer_s, passed_through)


@contextmanager
def translated_errors(
    client: KazooClient,
    what: str,
    answer_s: float,
    passed_through: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Translate all errors of ZooKeeper except the types `passed_through` to Unavailable.

    `what`: the target, for error texts; `answer_s`: the timeout that the body uses, for error
    texts. A lost connection raises Disconnected, a subclass of Unavailable. If the client is not
    connected at the start, raise Disconnected before the body runs: kazoo would queue its request.
    """
    if not client.connected:
        raise Disconnected(f"{what}: no server is connected now")
    try:
        yield
    except passed_through:
        raise
    except KazooTimeoutError:
        raise Unavailable(f"{what}: no answer within {answer_s:g} s") from None
    except errors.KazooException as error:
        kind = Disconnected if isinstance(error, LOSSES) else Unavailable
        raise kind(f"{what}: {_reason(error)}") from None


# Clients --------------------------------------------------------------------------------------


def connect(hosts: str, timeout_s: float, *, wait_s: float = CONNECT_TIMEOUT_S) -> KazooClient:
    """Return a client that has a session with the servers `hosts`: ``host:port,host:port/path``.

    `timeout_s`: how long the session outlives a lost connection, within the bounds that the servers
    set. `wait_s`: how long to wait for the servers. All paths of the client are beneath the path in
    `hosts`, which `connect` creates.

    Raises Unavailable if no server answers, or if `hosts` or its path is not usable.
    """
    servers, _, chroot = hosts.partition("/")
    kazoo_log = _KazooLog(log)
    try:
        client = KazooClient(
            servers,
            timeout_s,
            logger=kazoo_log,
            connection_retry={"max_tries": -1, "max_delay": RECONNECT_PAUSE_MAX_S},
        )
    except ValueError:
        raise Unavailable(
            f"{hosts!r} does not name ZooKeeper servers: give host:port, or several with commas"
        ) from None
    client.start_async().wait(wait_s)
    if not client.connected:
        close(client)
        why = f" ({kazoo_log.reason})" if kazoo_log.reason else ""
        raise Unavailable(
            f"no ZooKeeper server answers at {servers}{why}: start one, or correct the address"
        )
    if chroot.strip("/"):
        _enter(client, f"/{chroot.strip('/')}", wait_s)
    client.add_listener(_ConnectionLog(client))
    return client


def close(client: KazooClient) -> None:
    """Close a client and its session."""
    client.stop()
    client.close()


def servers_of(client: KazooClient) -> str:
    """Return the servers of a client, for messages."""
    return ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in client.hosts
    )


def _enter(client: KazooClient, path: str, wait_s: float) -> None:
    """Create a path and make it the root of the client's paths; on an error, close the client.

    Without this call kazoo would use the root, but not create it.
    """
    try:
        client.ensure_path_async(path).get(timeout=wait_s)
    except (KazooTimeoutError, errors.KazooException) as error:
        servers = servers_of(client)
        close(client)
        raise Unavailable(f"{path} in ZooKeeper at {servers}: {_reason(error)}") from None
    client.chroot = path


def _reason(error: Exception) -> str:
    """Return the human-readable reason of an error."""
    return next((text for kind, text in REASONS if isinstance(error, kind)), type(error).__name__)


class _ConnectionLog:
    """Logs when a client loses its servers or its session, and when it reconnects."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client
        self._servers = servers_of(client)
        self._failures = FailureLog("zookeeper-lost")

    def __call__(self, state: str) -> None:
        """Log a change of the connection; kazoo calls this in its own thread."""
        if state == KazooState.SUSPENDED:
            text = f"the connection to ZooKeeper at {self._servers} is lost; retrying"
            self._failures.record_failure(monotonic(), text, servers=self._servers)
        elif state == KazooState.CONNECTED:
            text = f"ZooKeeper at {self._servers} is connected again"
            self._failures.record_success(monotonic(), text, servers=self._servers)
        elif self._client.client_state != KeeperState.CLOSED:  # LOST, and not by our own `close`
            fields = event_fields("zookeeper-expired", servers=self._servers)
            log.warning("the session with ZooKeeper at %s is over", self._servers, extra=fields)


class _KazooLog(logging.LoggerAdapter[logging.Logger]):
    """Adapter for kazoo's logger: logs its errors as errors and its other lines at debug level.

    kazoo warns at each attempt to connect, and `_ConnectionLog` logs the important events. Lines
    below level INFO, which contain requests and their data, are dropped.
    """

    reason = ""
    """The reason in the last warning that contains one; empty if none did."""

    def log(self, level: int, msg: object, *args: object, **kwargs: object) -> None:
        if level < logging.INFO:
            return
        text = str(msg) % args if args else str(msg)
        if level == logging.WARNING and ": " in text:
            self.reason = text.partition(": ")[2]
        failed = level >= logging.ERROR
        fields = event_fields("zookeeper-client", text=text)
        self.logger.log(
            logging.ERROR if failed else logging.DEBUG, "kazoo: %s", text,
            exc_info=failed, extra=fields,
        )  # fmt: skip


class LeaderQueue:
    """Queue of masters at `path`. The caller connects and closes the client."""

    def __init__(
        self,
        client: KazooClient,
        path: str,
        *,
        address: str = "",
        changed: Callable[[], None] = lambda: None,
        expired: Callable[[], None] = lambda: None,
        answer_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        """Add a listener to the client.

        `address`: where members reach this process if it leads; `Enlist` stores it in the queue.
        Client threads call `changed` when the queue may have changed, and `expired` when the
        session has ended. `answer_s`: timeout of a request.
        """
        self._client = client
        self._path = path
        self._address = address
        self._changed = changed
        self._expired = expired
        self._answer_s = answer_s
        client.add_listener(self._on_connection_state)

    def close(self) -> None:
        """Remove the listener."""
        self._client.remove_listener(self._on_connection_state)

    def execute_job(self, job: IOJob) -> object:
        """Execute an `Enlist`, `FindPredecessor` or `FindSuccessor`, and return its result.

        Raises Unavailable, and StateMismatch if the process is not in the queue.
        """
        if isinstance(job, Enlist):
            self._enlist(job.process)
            return None
        if isinstance(job, FindSuccessor):
            return self._find_successor(job.process)
        assert isinstance(job, FindPredecessor)
        return self._watch_predecessor(job.process)

    def leader(self) -> tuple[str, str]:
        """Return (process, address) of the leader, ("", "") without one.

        Sets a watch, which calls `changed` at the next change of the queue. Raises Unavailable.
        """
        with translated_errors(self._client, self._path, self._answer_s):
            while True:
                try:
                    children = self._client.get_children_async(self._path, watch=self._on_watch)
                    queue = _in_order(children.get(timeout=self._answer_s))
                except errors.NoNodeError:
                    self._client.ensure_path_async(self._path).get(timeout=self._answer_s)
                    continue
                if not queue:
                    return "", ""
                try:
                    pending = self._client.get_async(f"{self._path}/{queue[0]}")
                    data, _ = pending.get(timeout=self._answer_s)
                except errors.NoNodeError:
                    continue  # removed meanwhile
                return _process(queue[0]), data.decode(errors="replace")

    def forget(self, process: str) -> None:
        """Remove an exited process from the queue, without waiting for the result.

        Without this call, ZooKeeper removes the znode only after the timeout of the session. If
        the request is lost, this does no harm: safety does not depend on the queue.
        """
        if self._client.connected:
            self._client.get_children_async(self._path).rawlink(partial(self._remove, process))

    def _remove(self, process: str, listing: IAsyncResult) -> None:
        if listing.successful():
            for name in listing.get():
                if _process(name) == process:
                    self._client.delete_async(f"{self._path}/{name}")

    def _enlist(self, process: str) -> None:
        with translated_errors(self._client, self._path, self._answer_s):
            self._client.ensure_path_async(self._path).get(timeout=self._answer_s)
            if any(_process(name) == process for name in self._queue()):
                return  # enlisted by an earlier attempt, whose answer was lost
            self._client.create_async(
                f"{self._path}/{process}-",
                self._address.encode(),
                ephemeral=True,
                sequence=True,
            ).get(timeout=self._answer_s)

    def _watch_predecessor(self, process: str) -> str:
        with translated_errors(self._client, self._path, self._answer_s):
            while True:
                queue = self._queue()
                position = _position_of(process, queue)
                if position == 0:
                    return ""
                predecessor = queue[position - 1]
                path = f"{self._path}/{predecessor}"
                pending = self._client.exists_async(path, watch=self._on_watch)
                if pending.get(timeout=self._answer_s) is not None:
                    return _process(predecessor)

    def _find_successor(self, process: str) -> str:
        with translated_errors(self._client, self._path, self._answer_s):
            queue = self._queue()
        behind = queue[_position_of(process, queue) + 1 :]
        return _process(behind[0]) if behind else ""

    def _queue(self) -> list[str]:
        """Return the names of the znodes, in order."""
        self._client.sync_async(self._path).get(timeout=self._answer_s)
        children = self._client.get_children_async(self._path).get(timeout=self._answer_s)
        return _in_order(children)

    # Called by threads of the client.

    def _on_watch(self, event: WatchedEvent) -> None:
        self._changed()

    def _on_connection_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._changed()
        elif state == KazooState.LOST and self._client.client_state != KeeperState.CLOSED:
            self._expired()


def _position_of(process: str, queue: Sequence[str]) -> int:
    """Return the index of a process in the queue. Raises StateMismatch if it is not there."""
    processes = [_process(name) for name in queue]
    if process not in processes:
        raise StateMismatch(f"{process} is no longer in the queue of masters: its session ended")
    return processes.index(process)


def _in_order(names: Iterable[str]) -> list[str]:
    """Return the names that are znodes of masters, in the order of the queue."""
    return sorted((name for name in names if _NAME.fullmatch(name)), key=lambda n: n[-_DIGITS:])


def _process(name: str) -> str:
    """Return the token of the process in the name of a znode."""
    return name[: -_DIGITS - 1]
