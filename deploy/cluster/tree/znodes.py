"""The tree of a cluster in ZooKeeper: a z-node for each path; what is held is an ephemeral one.

Watches fire once: each look sets those that it needs, and `changed` is called when one has fired,
and when the connection is back. `renew` looks whether what is held is there: it is gone with a
session, or if somebody has removed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event

from kazoo import exceptions as errors
from kazoo.client import KazooClient
from kazoo.protocol.states import WatchedEvent

from driftline.coordinator.registry import Registry
from driftline.coordinator.succession import Succession
from driftline.coordinator.zookeeper import ANSWER_S, ZooKeeperRegistry, answering, close, connect
from driftline.deploy.cluster.tree.tree import (
    AGENTS,
    FLOWS,
    NEW,
    Conflict,
    Entry,
    Masters,
    unchecked,
)
from driftline.engine.errors import InUse

LOOK_EVERY_S = 5.0
"""Only in case that a watch was lost."""

HELD_S = 10.0
"""How long the session of a killed agent may outlive it."""


class ZNodes:
    """The tree beneath a path of ZooKeeper: ``host:port,.../path``. Raises Unavailable."""

    look_every_s = LOOK_EVERY_S

    def __init__(self, hosts: str, session_s: float, *, answer_s: float = ANSWER_S) -> None:
        self.zookeeper = hosts
        self.where = f"ZooKeeper at {hosts}"
        self._client: KazooClient = connect(hosts, session_s)
        self._answer_s = answer_s
        self._held: dict[str, bytes] = {}
        self._before = ""
        """The session of a process that has ended, in whose place this one is."""
        self._changed: Callable[[], None] = lambda: None
        self._client.add_listener(self._connection)

    @property
    def has_cluster(self) -> bool:
        """Whether an agent has ever been here. Raises Unavailable."""
        with self._answering():
            asked = self._client.exists_async(f"/{AGENTS}")
            return asked.get(timeout=self._answer_s) is not None

    def read(self, path: str) -> Entry | None:
        with self._answering():
            try:
                asked = self._client.get_async(path, watch=self._fired)
                data, stat = asked.get(timeout=self._answer_s)
            except errors.NoNodeError:
                asked = self._client.exists_async(path, watch=self._fired)
                if asked.get(timeout=self._answer_s) is None:
                    return None
                return self.read(path)  # it has come meanwhile
            return Entry(data, stat.version)

    def write(self, path: str, data: bytes, version: int) -> None:
        with self._answering((errors.BadVersionError, errors.NodeExistsError)):
            try:
                if version == NEW:
                    asked = self._client.create_async(path, data, makepath=True)
                else:
                    asked = self._client.set_async(path, data, version)
                asked.get(timeout=self._answer_s)
            except (errors.BadVersionError, errors.NodeExistsError, errors.NoNodeError):
                raise Conflict(
                    f"{path} in {self.where}: another process has written it meanwhile"
                ) from None

    def children(self, path: str) -> list[str]:
        with self._answering():
            try:
                asked = self._client.get_children_async(path, watch=self._fired)
                return sorted(asked.get(timeout=self._answer_s))
            except errors.NoNodeError:
                self._client.ensure_path_async(path).get(timeout=self._answer_s)
            return self.children(path)

    def remove(self, path: str, check: Callable[[], None] = unchecked) -> None:
        with self._answering():
            found = self._with_versions(path)
        check()
        if not found:
            return
        transaction = self._client.transaction()
        for each, version in reversed(found):
            transaction.delete(each, version)
        with self._answering():
            done = transaction.commit_async().get(timeout=self._answer_s)
        if any(isinstance(each, Exception) for each in done):
            raise Conflict(f"{path} in {self.where}: another process has written there meanwhile")

    def _with_versions(self, path: str) -> list[tuple[str, int]]:
        """A path and all beneath it, each with its version; nothing if it is not there."""
        try:
            stat = self._client.exists_async(path).get(timeout=self._answer_s)
            if stat is None:
                return []
            names = self._client.get_children_async(path).get(timeout=self._answer_s)
        except errors.NoNodeError:
            return []  # it has gone meanwhile
        beneath = [found for name in names for found in self._with_versions(f"{path}/{name}")]
        return [(path, stat.version), *beneath]

    def hold(self, path: str, data: bytes) -> None:
        self._held[path] = data
        try:
            self._create(path, data)
        except InUse:
            del self._held[path]
            raise

    def let_go(self, path: str) -> None:
        if self._held.pop(path, None) is None:
            return
        with self._answering():
            stat = self._client.exists_async(path).get(timeout=self._answer_s)
            if stat is not None and str(stat.owner_session_id) == self.holder():
                self._remove_version(path, stat.version)

    def holder(self) -> str:
        session = self._client.client_id
        return str(session[0]) if session is not None else ""

    def succeed(self, holder: str) -> None:
        self._before = holder

    def renew(self) -> None:
        for path, data in list(self._held.items()):
            if not self._is_held(path, data):
                self._create(path, data)

    def masters(self, flow: str, changed: Callable[[], None]) -> Masters:
        path = f"/{FLOWS}/{flow}/masters"
        return Succession(self._client, path, changed=changed, answer_s=self._answer_s)

    def registry(self, flow: str) -> Registry:
        return ZooKeeperRegistry(self._client, f"/{FLOWS}/{flow}/registry")

    def on_change(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def close(self) -> None:
        self._client.remove_listener(self._connection)
        close(self._client)

    def _is_held(self, path: str, data: bytes) -> bool:
        """Whether this session holds this path, with these data."""
        with self._answering():
            try:
                asked = self._client.get_async(path, watch=self._fired)
                found, stat = asked.get(timeout=self._answer_s)
            except errors.NoNodeError:
                return False
        return bool(found == data and str(stat.owner_session_id) == self.holder())

    def _create(self, path: str, data: bytes) -> None:
        """Make an ephemeral z-node, or replace the data of our own."""
        with self._answering():
            while True:
                try:
                    asked = self._client.create_async(path, data, ephemeral=True, makepath=True)
                    asked.get(timeout=self._answer_s)
                    return
                except errors.NodeExistsError:
                    gone = Event()
                    asked = self._client.exists_async(path, watch=partial(_gone, gone))
                    stat = asked.get(timeout=self._answer_s)
                owner = "" if stat is None else str(stat.owner_session_id)
                if owner and owner == self.holder():
                    self._client.set_async(path, data).get(timeout=self._answer_s)
                    return
                if owner and owner == self._before:
                    self._remove_version(path, stat.version)
                elif owner and not gone.wait(HELD_S):
                    raise InUse(
                        f"{path} in {self.where} belongs to another process: give another name"
                    )

    def _remove_version(self, path: str, version: int) -> None:
        """Remove what a session held; nobody else can hold that path meanwhile."""
        with suppress(errors.NoNodeError, errors.BadVersionError):
            self._client.delete_async(path, version).get(timeout=self._answer_s)

    @contextmanager
    def _answering(self, answers: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        with answering(self._client, self.where, self._answer_s, answers):
            yield

    # Called by threads of the client.

    def _fired(self, event: WatchedEvent) -> None:
        self._changed()

    def _connection(self, state: str) -> None:
        self._changed()


def _gone(gone: Event, event: WatchedEvent) -> None:
    gone.set()
