"""The local cluster: starts the node and master processes of a run on this machine, and restarts
them.

A process that dies is noticed at once (`exits`). A spare takes its place (`spares`), or it starts
again; the coordinator then recovers the run. A process that cannot start, or that dies again and
again while the run makes no progress, ends the run; the error has the last lines that the process
wrote, and the record that it was working on. What processes say is told as it comes (`mouth`).

A process that is silent for too long is killed (`HangDetector`). On one machine that is certain:
its successor starts once the kernel has ended it, like that of any process that has died.
"""

from __future__ import annotations

import random
import secrets
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from driftline.coordinator.coordinator import Phase
from driftline.deploy.roles.watch import Watch
from driftline.deploy.runtime.children import child
from driftline.deploy.runtime.children.deaths import KILLED_SILENT, MAY_BE_DAMAGE, Deaths, how
from driftline.deploy.runtime.children.exits import Exits
from driftline.deploy.runtime.children.hangs import HangDetector, Running
from driftline.deploy.runtime.children.kills import Kills
from driftline.deploy.runtime.children.launched import Launched, deaf_to_interrupts
from driftline.deploy.runtime.children.lifeline import KeepAlive
from driftline.deploy.runtime.children.outdated import remove_outdated
from driftline.deploy.runtime.children.spares import SPARE, Spares
from driftline.deploy.runtime.children.statuses import BROKEN, CANNOT_START, MADE_WAY, STOPPED
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.process import where_it_was
from driftline.engine.errors import ONCE_MENDED, Unavailable
from driftline.engine.events import about, log
from driftline.engine.keygroups import names_of
from driftline.engine.texts import counted, visible
from driftline.engine.wire.messages import Report

MODULE = "driftline.deploy.runtime.process"
"""The module that a process runs."""

OVER = tuple(phase.value for phase in (Phase.STOPPING, Phase.STOPPED, Phase.ENDED))
"""States of a master whose nodes end because the run does."""

SAID_BEFORE_S = 0.5
"""What the master has said, at most so long before its word came, may be older than an end."""

ENDS_WITHIN_S = 10.0
"""How long the end of a process that was killed for its silence may take before that is told."""

REPLACE_AFTER_S = 0.2
"""The pause before the start of a master in place of one that has left the queue."""


class CannotStart(Unavailable):
    """A process has said why it cannot start."""


class LocalCluster:
    """Node and master processes. A context manager: on leaving it they are ended."""

    def __init__(
        self,
        config: ProcessConfig,
        spares: int = 0,
        masters: int = 1,
        names: Sequence[str] | None = None,
        front_module: str = "",
        takes: Callable[[str], bool] = lambda name: True,
        died: Callable[[str], None] = lambda process: None,
    ) -> None:
        """`spares`: processes that are kept ready for the next deaths. `masters`: how many queue up
        in ZooKeeper, if the configuration names one. `names`: the processes to run here; by default
        the masters and all nodes. `front_module`: what a front runs, if there are any.
        `takes`: whether a node of a later layout runs here. `died`: is told of each process that
        has died, by its token."""
        self.config = config
        self._takes = takes
        self._told_of_death = died
        numbered = [f"master-{i}" for i in range(masters)] if config.zookeeper else ["master"]
        here = numbered + names_of(config.layout or range(config.nodes))
        self._names = here if names is None else list(names)
        self._masters = [name for name in self._names if name.startswith("master")]
        self._modules = {"front": front_module}
        if any(name.startswith("front-") for name in self._names):
            self._modules[SPARE] = front_module
        self._exits = Exits()
        self.spares = Spares(spares, self._launch_spare)
        self.kills = 0
        self.restarts_of: Counter[str] = Counter()
        """Process -> how often it was started again."""
        self.deaths = Deaths(config.limits.deaths)
        self._children: dict[str, Launched] = {}
        self._start_at: dict[str, float] = {}
        """Process that has died -> when it is started again."""
        self._killed: set[str] = set()
        """Processes that `kill_one` has killed."""
        self._in_vain = Kills()
        self._hangs = HangDetector(config.limits.missing_after_s)
        self._hung: dict[str, float] = {}
        """Process that was killed for its silence, and has not ended -> when to tell that."""
        self._tokens: dict[str, str] = {}
        """Role -> the name of its process, new with each start."""
        self._asked_again = False
        self._ended_at: dict[str, float] = {}
        """Process that has ended in good order -> when that was seen."""
        self._nodes = self._first = 0
        self._layout = names_of(config.layout or range(config.nodes))
        """The nodes that run the flow, as far as is known."""

    def __enter__(self) -> Self:
        for name in self._names:
            self._start(name)
        names = ", ".join(f"{name} (pid {pid})" for name, pid in self.pids.items())
        log.info("started %s", names, extra=about("processes-started", **self.pids))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(wait_s=0.0 if error is not None else 1.0)

    def wake(self, runtime: Runtime) -> None:
        """Let the loop of a runtime wake up as soon as a process has ended."""
        if (file := self._exits.fileno()) is not None:
            runtime.listen(file, self._exits.take)

    @property
    def has_lost_one(self) -> bool:
        """Whether a process has ended since `supervise` was called last, as far as is known."""
        return self._exits.news

    def supervise(self, settled: int = 0, sent: int = 0, watch: Watch | None = None) -> None:
        """Restart processes that have died. `settled`, `sent`: how far the run is (see `Deaths`).

        Kills processes that hang. `watch`: what the master has said. Raises Unavailable if a
        process cannot start, or has died too often.
        """
        now = monotonic()
        self._exits.news = False
        self.deaths.moved(settled, sent)
        self._kill_hung(now)
        if watch is not None:
            self._look_after_nodes(now, watch)
        for name, process in self._processes.items():
            if name not in self._start_at:
                status = process.poll()
                if status is None or status == STOPPED:
                    self._tell_if_held(name, now)
                    continue
                self._told_of_death(self._tokens[name])
                self.restarts_of[name] += 1
                self._start_at[name] = now
                if status in (BROKEN, MADE_WAY) and self.config.zookeeper:
                    self._start_at[name] = self._replaced(name, status, now)
                elif name not in self._killed:
                    try:
                        self._start_at[name] = self._died(name, status, now)
                    except Unavailable as error:
                        if name in self._layout or not name.startswith("node-"):
                            raise
                        self._keep_nodes(name, error)
                        continue
                self._killed.discard(name)
            if now >= self._start_at[name]:
                del self._start_at[name]
                self._start_again(name)
        if all(process.poll() is None for process in self._processes.values()):
            self.spares.look(now)

    @property
    def wanted(self) -> int:
        """How many nodes there are to be; another number than was asked for if one of the next
        nodes does not come to life; 0: as many as there are."""
        return self._nodes

    def resize(self, nodes: int, first: int = 0) -> None:
        """Let the run have so many nodes, without an end; `supervise` has to be given a watch.

        `first`: the number of the first next one; 0: whatever is next.
        """
        self._nodes, self._first = nodes, first

    def _look_after_nodes(self, now: float, watch: Watch) -> None:
        """Start the nodes that the master wants, and forget those that have ended for good."""
        watch.nodes, watch.first = self._nodes, self._first
        report = watch.reports.get("master")
        if report is None or report.state in OVER or not report.wanted:
            return
        heard_at = watch.heard_at("master")
        if (layout := names_of(report.layout)) != self._layout:
            self._layout = layout
            remove_outdated(Path(self.config.state), report.layout, self._children)
        wanted = self._layout if self._nodes == len(self._layout) else report.wanted
        nodes = {name for name in (*self._children, *wanted) if name.startswith("node-")}
        for name in filter(self._takes, nodes):
            each = self._children.get(name)
            if each is None:
                self._start(name)
            elif each.process.poll() != STOPPED:
                self._ended_at.pop(name, None)
            elif heard_at > self._ended_at.setdefault(name, now) + SAID_BEFORE_S:
                self._ended_well(name, report)

    def _keep_nodes(self, name: str, error: Unavailable) -> None:
        """A node of the next layout does not come to life: the run keeps the nodes of now."""
        self._nodes = len(self._layout)
        log.error(
            "%s The run keeps its %s",
            *(error, counted(self._nodes, "node")),
            extra=about("resizing-given-up", reason=str(error)),
        )
        self._children.pop(name).cut()
        del self._start_at[name]

    def _ended_well(self, name: str, report: Report) -> None:
        """A node has ended in good order, though the run goes on; the master knows of that."""
        del self._ended_at[name]
        if name in report.wanted:
            self._start(name)
            return
        each = self._children.pop(name)
        each.hear_out()
        each.cut()
        remove_outdated(Path(self.config.state), report.layout, self._children)

    def _kill_hung(self, now: float) -> None:
        """Kill the processes that are silent for too long."""
        running = {}
        for name, each in self._children.items():
            if name in self._start_at or name in self._hung or each.process.poll() is not None:
                continue
            running[name] = Running(self._tokens[name], each.pid)
            if each.keep_alive is not None and each.keep_alive.heard():
                self._hangs.heard(name, self._tokens[name], now)
        for name in self._hangs.look(now, running, self.deaths.in_a_row):
            self._processes[name].kill()
            self._hung[name] = now + ENDS_WITHIN_S

    def _tell_if_held(self, name: str, now: float) -> None:
        """Tell of a process that does not end though it was killed."""
        if now < self._hung.get(name, inf):
            return
        self._hung[name], pid = inf, self.pids[name]
        log.warning(
            "%s (pid %d) was killed %.0f s ago, and has not ended: the kernel holds it, perhaps for"
            " a disk or a network file system that does not answer. It is started again after that",
            *(name, pid, ENDS_WITHIN_S),
            extra=about("process-held", name=name, pid=pid, seconds=ENDS_WITHIN_S),
        )

    def _died(self, name: str, status: int, now: float) -> float:
        """When to start a process that has died again. Raises Unavailable."""
        dead = self._children[name]
        pid = dead.pid
        ended = KILLED_SILENT if name in self._hung else how(status)
        dead.hear_out()
        heard = "\n".join(dead.mouth.last)
        said = heard or "it said nothing"
        if status == CANNOT_START:
            raise CannotStart(f"{name} cannot start: {said}")
        at = self.deaths.died(name, now)
        if at is None:
            was = visible(where_it_was(self.config, name))
            lines = [
                f"{name} has died {self.deaths.limit} times in a row without the run getting any "
                f"further, this time {ended}.",
                f"  It was at: {was}" if was else "",
                "  It said: " + said.replace("\n", "\n    ") if heard else "  It said nothing.",
                f"  Its files are in {self._files(name)}." if status in MAY_BE_DAMAGE else "",
                f"  {ONCE_MENDED}.",
            ]
            raise Unavailable("\n".join(filter(None, lines)))
        pause = at - now
        log.warning(
            "%s (pid %d) %s; it is started again%s",
            *(name, pid, ended, f" in {pause:.1f} s" if pause else ""),
            extra=about("process-died", name=name, pid=pid, status=status, pause=pause),
        )
        return at

    def _replaced(self, name: str, status: int, now: float) -> float:
        """When to start a master in place of one that has left the queue. That is no sign that
        anything is wrong with it, and it may happen any number of times."""
        dead = self._children[name]
        dead.hear_out()
        if status == MADE_WAY:
            self.deaths.made_way(name)
        log.info(
            "%s (pid %d) has %s; it queues up again",
            *(name, dead.pid),
            "made way for the next master" if status == MADE_WAY else "lost its place as a master",
            extra=about("master-replaced", name=name, pid=dead.pid, made_way=status == MADE_WAY),
        )
        return now + REPLACE_AFTER_S

    def _files(self, name: str) -> str:
        """Where a process keeps its state: one of these files may be damaged."""
        return str(Path(self.config.state) / ("registry" if name == "master" else name))

    def _start_again(self, name: str) -> None:
        spare = self._start(name)
        pid = self.pids[name]
        log.info(
            "%s is started again (pid %d%s)",
            *(name, pid, ", a spare" if spare else ""),
            extra=about("process-started", name=name, pid=pid, spare=spare),
        )

    def kill_one(self, chance: random.Random) -> str:
        """Kill -9 a random process. Returns its name."""
        name = chance.choice(sorted(set(self._processes) - set(self._start_at)))
        pid = self.pids[name]
        log.warning("kill -9 %s (pid %d)", name, pid, extra=about("kill", name=name, pid=pid))
        self._processes[name].kill()
        self._processes[name].wait()
        self.kills += 1
        self._in_vain.killed(monotonic(), self.deaths.settled, self.deaths.has_work)
        self._killed.add(name)
        return name

    @property
    def master_ended(self) -> bool:
        """Whether the master has ended in good order."""
        return any(self._processes[name].poll() == STOPPED for name in self._masters)

    @property
    def nodes_ended(self) -> bool:
        """Whether all nodes have ended in good order."""
        nodes = [each for name, each in self._processes.items() if name not in self._masters]
        return all(node.poll() == STOPPED for node in nodes)

    @property
    def ended(self) -> bool:
        """Whether all processes have ended in good order."""
        return all(process.poll() == STOPPED for process in self._processes.values())

    def ask_again(self) -> None:
        """Start another master, which finds in the registry how the run ended.

        Precondition: the master has ended, and has not said how. Raises Unavailable if this has
        been tried before.
        """
        if self._asked_again:
            raise Unavailable("the master ended without a word")
        self._asked_again = True
        self._start(self._masters[0])

    @property
    def _processes(self) -> dict[str, subprocess.Popen[bytes]]:
        return {name: each.process for name, each in self._children.items()}

    @property
    def restarts(self) -> int:
        """How often a process was started again."""
        return self.restarts_of.total()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name. Any thread may ask."""
        return {name: each.pid for name, each in list(self._children.items())}

    @property
    def running(self) -> list[str]:
        """The processes that run, as of the last look. Any thread may ask."""
        children = list(self._children.items())
        return [name for name, each in children if each.process.returncode is None]

    def stop(self, wait_s: float = 5.0) -> None:
        """Wait until all processes have ended, and kill those that have not after `wait_s`."""
        self.spares.stop()
        deadline = monotonic() + wait_s
        for each in self._children.values():
            try:
                each.process.wait(max(0.0, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                each.process.kill()
                each.process.wait()
            each.hear_out()
        for each in self._children.values():
            each.cut()
        self._exits.close()

    def _start(self, name: str) -> bool:
        """Start a process of this name. Returns whether it was a spare."""
        role, _, index = name.partition("-")
        self._hung.pop(name, None)
        self._tokens[name] = secrets.token_hex(8)
        if name in self._children:
            self._children[name].cut()
        config = replace(
            self.config,
            role=role,
            index=int(index or 0),
            careful=self.deaths.careful(name),
            process=self._tokens[name],
            again=name in self._children,
            in_vain=self.deaths.in_vain(name),
        )
        spare = self.spares.take(name, config)
        self._children[name] = spare or self._launch(name, config)
        now = monotonic()
        self.deaths.started(name, now)
        self.spares.disturbed(now)
        return spare is not None

    def _launch_spare(self, link: int) -> Launched:
        return self._launch(SPARE, replace(self.config, role=SPARE, spare=link))

    def _launch(self, name: str, config: ProcessConfig) -> Launched:
        alive = KeepAlive()
        config = replace(config, keep_alive=alive.fd)
        made = Launched(
            name,
            lambda fd, *said: self._popen(replace(config, lifeline=fd), *said),
            config.submitted_as,
            alive,
        )
        self._exits.watch(made.pid)
        return made

    def _popen(self, config: ProcessConfig, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
        with deaf_to_interrupts():
            return subprocess.Popen(
                child.command(self._modules.get(config.role, MODULE), config.to_json()),
                env=child.environment(),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=[
                    file for file in (config.lifeline, config.keep_alive, config.spare) if file >= 0
                ],
            )
