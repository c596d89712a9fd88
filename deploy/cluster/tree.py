"""The tree: where a cluster keeps what its agents and commands have to know of each other.

    agents/NAME                 an agent that lives: its roles, its slots, what goes wrong there
    flows/NAME/submission       what was submitted, and which agents run its roles
    flows/NAME/registry         the decisions of the flow's master (`coordinator.registry`)
    flows/NAME/masters          who leads, and where
    flows/NAME/wheels           the wheels that were sent with it

It is in ZooKeeper, with a z-node for each path. A write names the version that it replaces, so of
two writers one is refused. What is *held* is an ephemeral z-node: it is there as long as the
process that holds it.

Watches fire once: each look sets those that it needs, and `changed` is called when one has fired,
and when the connection is back. `renew` looks whether what is held is there: it is gone with a
session, or if somebody has removed it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event
from typing import NamedTuple

from kazoo import exceptions as errors
from kazoo.client import KazooClient
from kazoo.protocol.states import WatchedEvent

from driftline.coordinator.registry import Registry
from driftline.coordinator.zookeeper import (
    ANSWER_S,
    LeaderQueue,
    ZooKeeperRegistry,
    answering,
    close,
    connect,
)
from driftline.engine.errors import InUse, StateMismatch

AGENTS, FLOWS, SUBMISSION, REGISTRY = "agents", "flows", "submission", "registry"

LOOK_EVERY_S = 5.0
"""How often to look for changes, beside those that `changed` tells of: a watch may be lost."""

HELD_S = 10.0
"""How long the session of a killed agent may outlive it."""

NEW = -1
"""The version to write what is not there yet."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

NAMES = "letters, digits, '.', '_' and '-', 64 at most"
"""Of what the names of flows and agents consist."""


def is_name(text: str) -> bool:
    """Whether a flow or an agent may have this name."""
    return _NAME.fullmatch(text) is not None


class ZooKeeperNode(NamedTuple):
    """What is stored at a path."""

    data: bytes
    version: int


class WriteConflict(StateMismatch):
    """Another process has written meanwhile."""


def unchecked() -> None:
    """Default check of a removal: always allow."""


class ZooKeeperTree:
    """The tree beneath a path of ZooKeeper: ``host:port,.../path``.

    All calls but `close` raise Unavailable.
    """

    def __init__(self, hosts: str, session_s: float, *, answer_s: float = ANSWER_S) -> None:
        self.zookeeper = hosts
        """The servers, and the path of the tree."""
        self.where = f"ZooKeeper at {hosts}"
        """The tree, for people."""
        self._client: KazooClient = connect(hosts, session_s)
        self._answer_s = answer_s
        self._held: dict[str, bytes] = {}
        self._before = ""
        """The session of a process that has ended, in whose place this one is."""
        self._changed: Callable[[], None] = lambda: None
        self._client.add_listener(self._connection)

    @property
    def has_cluster(self) -> bool:
        """Whether an agent has ever been here."""
        with self._answering():
            asked = self._client.exists_async(f"/{AGENTS}")
            return asked.get(timeout=self._answer_s) is not None

    def read(self, path: str) -> ZooKeeperNode | None:
        """What is stored at a path; None if nothing is."""
        with self._answering():
            try:
                asked = self._client.get_async(path, watch=self._fired)
                data, stat = asked.get(timeout=self._answer_s)
            except errors.NoNodeError:
                asked = self._client.exists_async(path, watch=self._fired)
                if asked.get(timeout=self._answer_s) is None:
                    return None
                return self.read(path)  # it has come meanwhile
            return ZooKeeperNode(data, stat.version)

    def write(self, path: str, data: bytes, version: int) -> None:
        """Replace this version, or make a path that is NEW. Raises Conflict."""
        self.write_together({path: ZooKeeperNode(data, version)})

    def write_together(self, entries: Mapping[str, ZooKeeperNode]) -> None:
        """Write all entries in place of the versions that they name, or none. Raises Conflict."""
        with self._answering():
            for folder in sorted({path.rpartition("/")[0] for path in entries}):
                self._client.ensure_path_async(folder).get(timeout=self._answer_s)
            transaction = self._client.transaction()
            for path, (data, version) in entries.items():
                if version == NEW:
                    transaction.create(path, data)
                else:
                    transaction.set_data(path, data, version)
            done = transaction.commit_async().get(timeout=self._answer_s)
        if any(isinstance(each, Exception) for each in done):
            raise WriteConflict(
                f"{', '.join(entries)} in {self.where}: another process has written it meanwhile"
            )

    def children(self, path: str) -> list[str]:
        """The names beneath a path, sorted; of what is held, only what is held now."""
        with self._answering():
            try:
                asked = self._client.get_children_async(path, watch=self._fired)
                return sorted(asked.get(timeout=self._answer_s))
            except errors.NoNodeError:
                self._client.ensure_path_async(path).get(timeout=self._answer_s)
            return self.children(path)

    def remove(self, path: str, check: Callable[[], None] = unchecked) -> None:
        """Remove a path and all beneath it, if it is there, in one step.

        `check` looks whether that may be, and raises if not. What it has read is still so when the
        path is removed; else Conflict is raised, and nothing is removed.
        """
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
            raise WriteConflict(
                f"{path} in {self.where}: another process has written there meanwhile"
            )

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
        """Store data as long as this process lives, or replace what it holds there.

        Raises InUse if another process holds the path, and keeps it for some seconds.
        """
        self._held[path] = data
        try:
            self._create(path, data)
        except InUse:
            del self._held[path]
            raise

    def let_go(self, path: str) -> None:
        """Hold a path no more, if this process holds it: what another one holds stays."""
        if self._held.pop(path, None) is None:
            return
        with self._answering():
            stat = self._client.exists_async(path).get(timeout=self._answer_s)
            if stat is not None and str(stat.owner_session_id) == self.holder():
                self._remove_version(path, stat.version)

    def holder(self) -> str:
        """The session by which this process holds things now; it outlives it for a while."""
        session = self._client.client_id
        return str(session[0]) if session is not None else ""

    def succeed(self, holder: str) -> None:
        """The process that was this holder has ended: what it still holds is ours for the taking.

        Precondition: that is certain. "": nobody was.
        """
        self._before = holder

    def renew(self) -> None:
        """Hold again what is held no more, or was written by others. Raises InUse."""
        for path, data in list(self._held.items()):
            if not self._is_held(path, data):
                self._create(path, data)

    def masters(self, flow: str, changed: Callable[[], None]) -> LeaderQueue:
        """The masters of a flow; `changed`: see `on_change`."""
        path = f"/{FLOWS}/{flow}/masters"
        return LeaderQueue(self._client, path, changed=changed, answer_s=self._answer_s)

    def registry(self, flow: str) -> Registry:
        """The registry of a flow."""
        return ZooKeeperRegistry(self._client, f"/{FLOWS}/{flow}/{REGISTRY}")

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call this, from any thread, once after each look that has become out of date."""
        self._changed = changed

    def close(self) -> None:
        """Hold nothing any more, and ask no more."""
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
    def _answering(self) -> Iterator[None]:
        with answering(self._client, self.where, self._answer_s):
            yield

    # Called by threads of the client.

    def _fired(self, event: WatchedEvent) -> None:
        self._changed()

    def _connection(self, state: str) -> None:
        self._changed()


def _gone(gone: Event, event: WatchedEvent) -> None:
    gone.set()
