"""The children of a service beside those of its flow: the journal's process, and the views'.

A child that dies is started again; one that dies again and again, with a growing pause. One that
says why it cannot start ends the service. One of which nothing is heard any more is told of, and
killed: it is waited for twice as long each time, as it may only be slow.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from signal import SIGTERM
from time import monotonic
from types import TracebackType
from typing import Self

from driftline.deploy.runtime.children import child
from driftline.deploy.runtime.children.deaths import how
from driftline.deploy.runtime.children.exits import Exits
from driftline.deploy.runtime.children.launched import Launched, deaf_to_interrupts
from driftline.deploy.runtime.children.statuses import CANNOT_START, STOPPED
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.engine.errors import Unavailable
from driftline.engine.events import about, log
from driftline.serve.hosting.config import JOURNAL, ServiceConfig

PAUSE_S, PAUSE_S_MAX = 0.05, 5.0
"""Before the next start of a child; doubles with each death soon after a start."""

SILENT_S, PATIENCE_S = 5.0, 15.0
"""After so long a silence a child is told of; and killed."""

WELL_S = 10.0
"""A child that has lived for so long had started well."""

FINISH_S = 10.0
"""So long the last checkpoints of views may take; without them the next start takes longer."""

ASK_EVERY_S = 0.25
"""How often a view is asked to end."""

_MODULES = "driftline.serve.hosting.journal_process", "driftline.serve.hosting.view_process"


@dataclass(slots=True)
class _Child:
    """A child that was started; all of it is over with its process."""

    launched: Launched
    started_at: float
    start_again_at: float = inf
    """It has died, and is started again then."""
    silence_told: bool = False
    killed: bool = False


class Children:
    """The journal and all views. A context manager: on leaving it they are killed, which loses
    nothing.

    `start`: starts the process that a configuration is of.
    """

    def __init__(
        self, config: ServiceConfig, start: Callable[[ServiceConfig], Launched] | None = None
    ) -> None:
        self.restarts = 0
        self.ending = False
        """Whether the service ends: views that have ended, as they were asked to, stay so."""
        self._config = config
        self._launch = start or launch
        self._exits = Exits()
        self._running: dict[str, _Child] = {}
        self._pauses: dict[str, float] = {}
        """Name -> the last pause before a start; `_patience`: with the next silence."""
        self._patience: dict[str, float] = {}
        self._roles = {JOURNAL: (JOURNAL, 0)} | {
            replace(config, role=view.name, shard=shard).name: (view.name, shard)
            for view in config.views
            for shard in range(view.shards)
        }

    def __enter__(self) -> Self:
        for name in self._roles:
            self._start(name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in self._running.values():
            each.launched.end()
        self._exits.close()

    @property
    def pids(self) -> Mapping[str, int]:
        """Process ids by name. Any thread may ask."""
        return {name: each.launched.pid for name, each in list(self._running.items())}

    @property
    def has_lost_one(self) -> bool:
        """Whether a child has ended since `supervise` was called last, as far as is known."""
        return self._exits.news

    def wake(self, runtime: Runtime) -> None:
        """Let the loop of a runtime wake up as soon as a child has ended."""
        if (file := self._exits.fileno()) is not None:
            runtime.listen(file, self._exits.take)

    def supervise(self, silent_s: Callable[[str, float], float]) -> None:
        """Start children again that have died, and end those that hang.

        `silent_s`: for how long a child, by its name, that was started at a time was not heard.
        Raises Unavailable if one cannot start.
        """
        now = monotonic()
        self._exits.news = False
        for name, each in list(self._running.items()):
            status = each.launched.process.poll()
            if self.ending and status == STOPPED:
                continue
            if status is None:
                self._look(name, each, silent_s(name, each.started_at))
            elif each.start_again_at == inf:
                self._died(name, each, status, now)
            if now >= each.start_again_at:
                each.launched.cut()
                self._start(name)
                self.restarts += 1
                pid = self.pids[name]
                told = about("process-started", name=name, pid=pid)
                log.info("%s is started again (pid %d)", name, pid, extra=told)

    def finish(self) -> None:
        """Let views have their last checkpoints written, so that the next start is quick."""
        left = [each.launched.process for name, each in self._running.items() if name != JOURNAL]
        until = monotonic() + FINISH_S
        while left and monotonic() < until:
            for each in left:  # again and again: one that is just starting takes no notice yet
                each.send_signal(SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                left[0].wait(ASK_EVERY_S)
            left = [each for each in left if each.poll() is None]

    def _look(self, name: str, each: _Child, silent_s: float) -> None:
        """End a child that has been silent for too long."""
        patience_s, pid = self._patience.get(name, PATIENCE_S), each.launched.pid
        if silent_s < SILENT_S:
            each.silence_told = False
        elif silent_s >= patience_s:
            self._patience[name] = 2 * patience_s
            told = about("process-hangs", name=name, pid=pid, seconds=silent_s)
            text = "%s (pid %d) has been silent for %.0f s: it is killed"
            log.error(text, name, pid, silent_s, extra=told)
            each.killed = True
            each.launched.process.kill()
        elif not each.silence_told:
            each.silence_told = True
            told = about("process-silent", name=name, pid=pid, seconds=silent_s)
            text = "%s (pid %d) has been silent for %.0f s; after %.0f s it is killed"
            log.warning(text, name, pid, silent_s, patience_s, extra=told)

    def _died(self, name: str, each: _Child, status: int, now: float) -> None:
        dead = each.launched
        dead.hear_out()
        if status == CANNOT_START:
            raise Unavailable("\n".join(dead.mouth.last) or f"{name} cannot start")
        started_well = now - each.started_at > WELL_S
        pause = PAUSE_S if started_well else min(PAUSE_S_MAX, self._pauses.get(name, 0.025) * 2)
        self._pauses[name] = pause
        each.start_again_at = now + pause
        log.warning(
            "%s (pid %d) %s; it is started again in %.1f s",
            *(name, dead.pid, "was killed" if each.killed else how(status), pause),
            extra=about("process-died", name=name, pid=dead.pid, status=status, pause=pause),
        )

    def _start(self, name: str) -> None:
        role, shard = self._roles[name]
        launched = self._launch(replace(self._config, role=role, shard=shard))
        self._running[name] = _Child(launched, monotonic())
        self._exits.watch(launched.pid)


def launch(config: ServiceConfig) -> Launched:
    """Start the process that the configuration is of."""
    module = _MODULES[config.role != JOURNAL]

    def popen(lifeline: int, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
        with deaf_to_interrupts():
            return subprocess.Popen(
                child.command(module, replace(config, lifeline=lifeline).to_json()),
                env=child.environment(),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=[lifeline],
            )

    return Launched(config.name, popen)
