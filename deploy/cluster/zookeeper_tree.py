"""Tree of a cluster: the shared records of its agents and commands, in ZooKeeper.

    agents/NAME                 a live agent: its roles, its slots, its problems
    flows/NAME/submission       the flow, its options, and the agents of its nodes and fronts
    flows/NAME/registry         the decisions of the flow's master (`coordinator.registry`)
    flows/NAME/masters          the queue of masters, and the leader's address
    flows/NAME/wheels           the wheels that were sent with submissions

Each path is a znode. A write names the version that it replaces, so of two concurrent writers one
is rejected. A *held* path is an ephemeral znode: it exists as long as the session of the process
that created it.

Each read sets a watch, which fires once. The callback of `on_change` is called when a watch fires,
and when the state of the connection changes. Held paths vanish if the session expires or another
process removes them; `restore_ephemerals` creates them again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event
from typing import Any, NamedTuple

from kazoo import exceptions as errors
from kazoo.client import KazooClient
from kazoo.handlers.utils import AsyncResult
from kazoo.protocol.states import WatchedEvent

from driftline.coordinator.registry import Registry
from driftline.coordinator.zookeeper import (
    ANSWER_TIMEOUT_S,
    LeaderQueue,
    ZooKeeperRegistry,
    close,
    connect,
    translated_errors,
)
from driftline.engine.errors import InUse, StateMismatch

AGENTS, FLOWS, SUBMISSION, REGISTRY = "agents", "flows", "submission", "registry"

POLL_EVERY_S = 5.0
"""Seconds between polls for changes, in addition to watches: a watch may be lost."""

SESSION_EXPIRY_S = 10.0
"""Seconds to wait beyond the session timeout until a killed agent's session has surely expired."""

NEW = -1
"""Version to name in a write that creates the path."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

NAMES = "letters, digits, '.', '_' and '-', 64 at most"
"""Rule for the names of flows and agents, for error texts; see `is_name`."""


def is_name(text: str) -> bool:
    """Return whether a flow or an agent may have this name.

    Besides the rule in NAMES, it must begin with a letter or a digit.
    """
    return _NAME.fullmatch(text) is not None


class ZooKeeperNode(NamedTuple):
    """Data and version of a path."""

    data: bytes
    version: int


class WriteConflict(StateMismatch):
    """Another process has changed a path since it was read."""


def unchecked() -> None:
    """Allow a removal: the default check."""


class ZooKeeperTree:
    """Client of the tree, with a ZooKeeper session of its own.

    `hosts`: the servers and the root of the tree, ``host:port,.../path``; other paths are relative
    to this root. `session_s`: timeout of the session; `answer_s`: timeout of a request. All calls
    that send requests raise Unavailable.
    """

    def __init__(self, hosts: str, session_s: float, *, answer_s: float = ANSWER_TIMEOUT_S) -> None:
        self.zookeeper = hosts
        """The argument `hosts`."""
        self.where = f"ZooKeeper at {hosts}"
        """Name of the tree, for people."""
        self._client: KazooClient = connect(hosts, session_s)
        self._answer_s = answer_s
        self._ephemerals: dict[str, bytes] = {}
        """Path that this process is to hold -> its data."""
        self._session_s = session_s
        self._changed: Callable[[], None] = lambda: None
        """The callback of `on_change`."""
        self._client.add_listener(self._on_connection_state)

    @property
    def has_cluster(self) -> bool:
        """Whether an agent has ever registered here."""
        with self._answering():
            return self._get(self._client.exists_async(f"/{AGENTS}")) is not None

    def read(self, path: str) -> ZooKeeperNode | None:
        """Return the data and version of a path; None if it does not exist."""
        with self._answering():
            try:
                data, stat = self._get(self._client.get_async(path, watch=self._on_watch_event))
            except errors.NoNodeError:
                if self._get(self._client.exists_async(path, watch=self._on_watch_event)) is None:
                    return None
                return self.read(path)  # it was created meanwhile
            return ZooKeeperNode(data, stat.version)

    def write(self, path: str, data: bytes, version: int) -> None:
        """Replace this version of a path; NEW: create the path. Raises WriteConflict."""
        self.write_together({path: ZooKeeperNode(data, version)})

    def write_together(self, entries: Mapping[str, ZooKeeperNode]) -> None:
        """Write all paths atomically, if each still has the version in its entry; NEW: create it.

        If a path has another version, write nothing and raise WriteConflict.
        """
        with self._answering():
            for folder in sorted({path.rpartition("/")[0] for path in entries}):
                self._get(self._client.ensure_path_async(folder))
            transaction = self._client.transaction()
            for path, (data, version) in entries.items():
                if version == NEW:
                    transaction.create(path, data)
                else:
                    transaction.set_data(path, data, version)
            results = self._get(transaction.commit_async())
        if any(isinstance(each, Exception) for each in results):
            raise WriteConflict(
                f"{', '.join(entries)} in {self.where}: another process has written it meanwhile"
            )

    def children(self, path: str) -> list[str]:
        """Return the names directly below a path, sorted. Create the path if it does not exist."""
        with self._answering():
            try:
                return sorted(
                    self._get(self._client.get_children_async(path, watch=self._on_watch_event))
                )
            except errors.NoNodeError:
                self._get(self._client.ensure_path_async(path))
            return self.children(path)

    def remove(self, path: str, check: Callable[[], None] = unchecked) -> None:
        """Remove a path and all paths below it in one transaction; do nothing if it does not exist.

        `check` raises if the removal is not allowed. If another process has written one of these
        paths since `check` began, remove nothing and raise WriteConflict.
        """
        with self._answering():
            versions = self._with_versions(path)
        check()
        if not versions:
            return
        transaction = self._client.transaction()
        for each, version in reversed(versions):
            transaction.delete(each, version)
        with self._answering():
            results = self._get(transaction.commit_async())
        if any(isinstance(each, Exception) for each in results):
            raise WriteConflict(
                f"{path} in {self.where}: another process has written there meanwhile"
            )

    def _with_versions(self, path: str) -> list[tuple[str, int]]:
        """Return (path, version) of a path and all below it; [] if the path does not exist."""
        try:
            stat = self._get(self._client.exists_async(path))
            if stat is None:
                return []
            names = self._get(self._client.get_children_async(path))
        except errors.NoNodeError:
            return []  # it was removed meanwhile
        beneath = [each for name in names for each in self._with_versions(f"{path}/{name}")]
        return [(path, stat.version), *beneath]

    def put_ephemeral(self, path: str, data: bytes) -> None:
        """Hold a path with these data, or replace the data of a path that this process holds.

        If another session holds the path, wait until it has expired, as its process may be dead.
        Raises InUse if it still holds the path after the session timeout and SESSION_EXPIRY_S.
        """
        self._ephemerals[path] = data
        try:
            self._create(path, data)
        except InUse:
            del self._ephemerals[path]
            raise

    def remove_ephemeral(self, path: str) -> None:
        """Release a path that this process holds; a path held by another process stays."""
        if self._ephemerals.pop(path, None) is None:
            return
        with self._answering():
            stat = self._get(self._client.exists_async(path))
            if stat is not None and str(stat.owner_session_id) == self.session_id():
                with suppress(errors.NoNodeError, errors.BadVersionError):
                    self._get(self._client.delete_async(path, stat.version))

    def session_id(self) -> str:
        """Return the id of this process's current session; "" without one."""
        session = self._client.client_id
        return str(session[0]) if session is not None else ""

    def restore_ephemerals(self) -> None:
        """Create held paths again that were lost, and restore their data. Raises InUse."""
        for path, data in list(self._ephemerals.items()):
            if not self._is_held(path, data):
                self._create(path, data)

    def masters(self, flow: str, changed: Callable[[], None]) -> LeaderQueue:
        """Return the queue of a flow's masters; `changed`: see `on_change`."""
        path = f"/{FLOWS}/{flow}/masters"
        return LeaderQueue(self._client, path, changed=changed, answer_s=self._answer_s)

    def registry(self, flow: str) -> Registry:
        """Return the registry of a flow."""
        return ZooKeeperRegistry(self._client, f"/{FLOWS}/{flow}/{REGISTRY}")

    def on_change(self, changed: Callable[[], None]) -> None:
        """Set the callback for changes of read paths and of the connection.

        Threads of the ZooKeeper client call it.
        """
        self._changed = changed

    def close(self) -> None:
        """Close the connection; all held paths are released."""
        self._client.remove_listener(self._on_connection_state)
        close(self._client)

    def _is_held(self, path: str, data: bytes) -> bool:
        """Return whether this session holds this path with these data."""
        with self._answering():
            try:
                stored, stat = self._get(self._client.get_async(path, watch=self._on_watch_event))
            except errors.NoNodeError:
                return False
        return bool(stored == data and str(stat.owner_session_id) == self.session_id())

    def _create(self, path: str, data: bytes) -> None:
        """Create an ephemeral znode, or replace the data of one that this session owns.

        Wait for the session of another owner to expire; raise InUse if it does not.
        """
        with self._answering():
            while True:
                try:
                    self._get(self._client.create_async(path, data, ephemeral=True, makepath=True))
                    return
                except errors.NodeExistsError:
                    changed = Event()
                    watch = partial(_set, changed)
                    stat = self._get(self._client.exists_async(path, watch=watch))
                owner = "" if stat is None else str(stat.owner_session_id)
                if owner and owner == self.session_id():
                    self._get(self._client.set_async(path, data))
                    return
                if owner and not changed.wait(self._session_s + SESSION_EXPIRY_S):
                    raise InUse(
                        f"{path} in {self.where} belongs to another process: give another name"
                    )

    def _get(self, result: AsyncResult) -> Any:
        """Wait for the answer to a request, and return it."""
        return result.get(timeout=self._answer_s)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        with translated_errors(self._client, self.where, self._answer_s):
            yield

    # Called by threads of the client.

    def _on_watch_event(self, event: WatchedEvent) -> None:
        self._changed()

    def _on_connection_state(self, state: str) -> None:
        self._changed()


def _set(changed: Event, event: WatchedEvent) -> None:
    changed.set()
