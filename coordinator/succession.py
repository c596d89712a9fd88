"""The queue of masters in ZooKeeper: a z-node for each, which is gone with its session.

`leadership.py` says what the queue is for. The z-nodes are numbered by ZooKeeper, so their order is
that of their arrival; each has the name of its master's process and, as its data, the address at
which members find that master. Whoever cannot lead may look who is the first (`leader`).

Watches fire once. So `changed` is called at most once for each look, by a thread of the client: the
caller then looks again. It is also called when the connection is back, as a watch may have been
lost with it. `expired` is called once the session is over: all its z-nodes are gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from kazoo import exceptions as errors
from kazoo.client import KazooClient
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import KazooState, KeeperState, WatchedEvent

from driftline.coordinator.leadership import Enlist, LookAtQueue
from driftline.coordinator.making_way import LookBehind
from driftline.coordinator.zookeeper import ANSWER_S, answering
from driftline.engine.errors import StateMismatch
from driftline.engine.wire.party import Job

_DIGITS = 10
"""Of the number that ZooKeeper adds to a name."""

_NAME = re.compile(rf".+-[0-9]{{{_DIGITS}}}")


class Succession:
    """The queue at `path`. The client is connected; whoever opened it closes it."""

    def __init__(
        self,
        client: KazooClient,
        path: str,
        *,
        address: str = "",
        changed: Callable[[], None] = lambda: None,
        expired: Callable[[], None] = lambda: None,
        answer_s: float = ANSWER_S,
    ) -> None:
        """`address`: where members find this process, if it queues up."""
        self._client = client
        self._path = path
        self._address = address
        self._changed = changed
        self._expired = expired
        self._answer_s = answer_s
        client.add_listener(self._connection)

    def close(self) -> None:
        """Listen no more."""
        self._client.remove_listener(self._connection)

    def carry_out(self, job: Job) -> object:
        """Do `Enlist`, `LookAtQueue` or `LookBehind`. Raises Unavailable, StateMismatch."""
        if isinstance(job, Enlist):
            self._enlist(job.process)
            return None
        if isinstance(job, LookBehind):
            return self._behind(job.process)
        assert isinstance(job, LookAtQueue)
        return self._before(job.process)

    def leader(self) -> tuple[str, str]:
        """(process, address) of the first; empty texts if there is none. Raises Unavailable."""
        with answering(self._client, self._path, self._answer_s):
            while True:
                try:
                    children = self._client.get_children_async(self._path, watch=self._fired)
                    queue = _in_order(children.get(timeout=self._answer_s))
                except errors.NoNodeError:
                    self._client.ensure_path_async(self._path).get(timeout=self._answer_s)
                    continue
                if not queue:
                    return "", ""
                try:
                    asked = self._client.get_async(f"{self._path}/{queue[0]}")
                    data, _ = asked.get(timeout=self._answer_s)
                except errors.NoNodeError:
                    continue  # it has gone meanwhile
                return _process(queue[0]), data.decode(errors="replace")

    def forget(self, process: str) -> None:
        """Take a process that has ended out of the queue, without waiting for that.

        Its place would be gone with its session, too, but only after the silence that this allows.
        Who is in the queue decides nothing, so no harm is done if this comes late.
        """
        if self._client.connected:
            self._client.get_children_async(self._path).rawlink(partial(self._remove, process))

    def _remove(self, process: str, found: IAsyncResult) -> None:
        if found.successful():
            for name in found.get():
                if _process(name) == process:
                    self._client.delete_async(f"{self._path}/{name}")

    def _enlist(self, process: str) -> None:
        with answering(self._client, self._path, self._answer_s):
            self._client.ensure_path_async(self._path).get(timeout=self._answer_s)
            if any(_process(name) == process for name in self._queue()):
                return  # by a try before, whose answer was lost
            self._client.create_async(
                f"{self._path}/{process}-",
                self._address.encode(),
                ephemeral=True,
                sequence=True,
            ).get(timeout=self._answer_s)

    def _before(self, process: str) -> str:
        with answering(self._client, self._path, self._answer_s):
            while True:
                queue = self._queue()
                at = _place(process, queue)
                if at == 0:
                    return ""
                watched = f"{self._path}/{queue[at - 1]}"
                asked = self._client.exists_async(watched, watch=self._fired)
                if asked.get(timeout=self._answer_s) is not None:
                    return _process(queue[at - 1])

    def _behind(self, process: str) -> str:
        with answering(self._client, self._path, self._answer_s):
            queue = self._queue()
        behind = queue[_place(process, queue) + 1 :]
        return _process(behind[0]) if behind else ""

    def _queue(self) -> list[str]:
        """The names of the z-nodes, in order."""
        self._client.sync_async(self._path).get(timeout=self._answer_s)
        children = self._client.get_children_async(self._path).get(timeout=self._answer_s)
        return _in_order(children)

    # Called by threads of the client.

    def _fired(self, event: WatchedEvent) -> None:
        self._changed()

    def _connection(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._changed()
        elif state == KazooState.LOST and self._client.client_state != KeeperState.CLOSED:
            self._expired()


def _place(process: str, queue: Sequence[str]) -> int:
    places = [_process(name) for name in queue]
    if process not in places:
        raise StateMismatch(f"{process} is not among the masters any more")
    return places.index(process)


def _in_order(names: Iterable[str]) -> list[str]:
    """The z-nodes of masters in their order, without those that somebody else has made."""
    return sorted((name for name in names if _NAME.fullmatch(name)), key=lambda n: n[-_DIGITS:])


def _process(name: str) -> str:
    return name[: -_DIGITS - 1]
