"""Local cluster: the node, front and master processes of a run on this machine.

They are forked from a fork server (`fork_server`). If a process dies, the supervisor forks another
one, and the coordinator recovers the run. The error that ends a crash loop names the record in
progress.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import monotonic

from msgspec.structs import replace

from driftline.coordinator.coordinator import Phase
from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.process import read_last_element
from driftline.deploy.runtime.supervision.child_process import (
    ChildProcess,
    Pipes,
    ProcessHandle,
    start_module,
)
from driftline.deploy.runtime.supervision.fork_server import FORK_SERVER, ForkServer
from driftline.deploy.runtime.supervision.restarts import (
    BROKEN,
    MAY_BE_DAMAGE,
    STEPPED_DOWN,
    STOPPED,
    RestartPolicy,
)
from driftline.deploy.runtime.supervision.supervisor import Supervisor
from driftline.engine.errors import Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.keygroups import Layout, node_names
from driftline.engine.texts import counted, escape_controls
from driftline.engine.wire.messages import StatusReport

MODULE = "driftline.deploy.runtime.process"

ENDING_STATES = tuple(phase.value for phase in (Phase.STOPPING, Phase.STOPPED, Phase.ENDED))
"""States of the master in which nodes exit because the run ends."""

STALE_REPORT_S = 0.5
"""A report of the master that arrives this soon after an exit may predate it."""

REPLACE_AFTER_S = 0.2
"""Pause before a master that has left the queue is restarted, in seconds."""


class LocalCluster(Supervisor):
    """Supervisor of node, front and master processes."""

    def __init__(
        self,
        config: ProcessConfig,
        masters: int = 1,
        names: Sequence[str] | None = None,
        module: str = MODULE,
        accepts_node: Callable[[str], bool] = lambda name: True,
        on_crash: Callable[[str], None] = lambda process: None,
    ) -> None:
        """`masters`: number of masters; ignored if the configuration names no ZooKeeper: then there
        is one. `names`: the processes to run here; by default the masters and all nodes. `module`:
        the module that they run. `accepts_node`: returns whether a node of a later layout runs
        here. `on_crash`: called with the token of each process that exited without a request."""
        numbered = [f"master-{i}" for i in range(masters)] if config.zookeeper else ["master"]
        self._layout = node_names(config.layout or range(config.nodes))
        """Nodes of the newest known layout."""
        names = [*numbered, *self._layout] if names is None else names
        super().__init__(
            names, RestartPolicy(config.limits.max_crashes), config.limits.missing_after_s
        )
        self.config = config
        self._accepts_node = accepts_node
        self._on_crash = on_crash
        self._masters = [name for name in self._names if name.startswith("master")]
        self._module = module
        self._fork_server: ForkServer | None = None
        self.kills = 0
        self._killed: set[str] = set()
        """Processes that `kill_one` has killed, and that are not restarted yet."""
        self._is_master_restarted = False
        self._stopped_at: dict[str, float] = {}
        """Node that stopped on request -> when the supervisor noticed it."""
        self._desired_nodes = self._first_new_node = 0

    def supervise(
        self, completed: int = 0, sent: int = 0, poller: StatusPoller | None = None
    ) -> None:
        """Restart processes that have died, and kill those that hang.

        `completed`, `sent`: progress of the run (see `RestartPolicy`). `poller`: poller with
        reports of the master. Raises Unavailable if a process cannot start, or has died too often.
        """
        self.restart_policy.record_progress(completed, sent)
        now = monotonic()
        if poller is not None:
            self._reconcile_nodes(now, poller)
        super().supervise()

    def stop(self, wait_s: float = 5.0) -> None:
        """Wait until all processes have exited, and kill those that have not after `wait_s`.

        Then stop the fork server, too.
        """
        super().stop(wait_s)
        if self._fork_server is not None:
            self._fork_server.stop()

    @property
    def desired_nodes(self) -> int:
        """Desired number of nodes; 0: keep the current number. Reset to the current number if a
        node of the next layout does not start."""
        return self._desired_nodes

    def rescale(self, nodes: int, first: int = 0) -> None:
        """Change the number of nodes during the run. Precondition: `supervise` gets a `poller`.

        `first`: the number of the first new node; 0: the next free one.
        """
        self._desired_nodes, self._first_new_node = nodes, first

    def kill_one(self, rng: random.Random) -> str:
        """Kill a random process, and return its name. `RestartPolicy` does not count this crash."""
        name = rng.choice(sorted(set(self._processes) - set(self._start_at)))
        pid = self.pids[name]
        log.warning(
            "--kill-every: kill -9 of %s (pid %d)",
            name,
            pid,
            extra=event_fields("chaos-kill", name=name, pid=pid),
        )
        self._processes[name].kill()
        self._processes[name].wait()
        self.kills += 1
        self._killed.add(name)
        return name

    @property
    def master_ended(self) -> bool:
        """Whether one of the masters stopped on request."""
        return any(self._processes[name].poll() == STOPPED for name in self._masters)

    @property
    def nodes_ended(self) -> bool:
        """Whether all nodes and fronts stopped on request."""
        nodes = [each for name, each in self._processes.items() if name not in self._masters]
        return all(node.poll() == STOPPED for node in nodes)

    def restart_master(self) -> None:
        """Start another master, which finds the outcome of the run in the registry.

        Precondition: the master has exited, and its last messages were lost. Raises Unavailable at
        a second call.
        """
        if self._is_master_restarted:
            raise Unavailable("the master exited without recording an outcome")
        self._is_master_restarted = True
        self._start(self._masters[0])

    def _reconcile_nodes(self, now: float, poller: StatusPoller) -> None:
        """Pass the desired number of nodes to the poller, which requests it from the master.

        Start the nodes that the master wants, forget those that it no longer wants, and remove the
        stores of earlier layouts.
        """
        poller.desired_nodes, poller.first_desired_node = self._desired_nodes, self._first_new_node
        report = poller.reports.get("master")
        if report is None or report.state in ENDING_STATES or not report.required_nodes:
            return
        answered_at = poller.answered_at("master")
        if (layout := node_names(report.layout)) != self._layout:
            self._layout = layout
            remove_outdated(Path(self.config.state), report.layout, self._children)
        required_nodes = (
            self._layout if self._desired_nodes == len(self._layout) else report.required_nodes
        )
        nodes = {name for name in (*self._children, *required_nodes) if name.startswith("node-")}
        for name in filter(self._accepts_node, nodes):
            each = self._children.get(name)
            if each is None:
                self._start(name)
            elif each.process.poll() != STOPPED:
                self._stopped_at.pop(name, None)
            elif answered_at > self._stopped_at.setdefault(name, now) + STALE_REPORT_S:
                self._handle_planned_exit(name, report)

    def _handle_planned_exit(self, name: str, report: StatusReport) -> None:
        """Restart a node that stopped on request if the master wants it, or else forget it.

        `report`: a report that the master sent after the exit.
        """
        del self._stopped_at[name]
        if name in report.required_nodes:
            self._start(name)
            return
        each = self._children.pop(name)
        each.flush()
        each.cut()
        remove_outdated(Path(self.config.state), report.layout, self._children)

    def _abandon_rescale(self, name: str, error: Unavailable) -> None:
        """Keep the current nodes, because a node of the next layout does not start."""
        self._desired_nodes = len(self._layout)
        log.error(
            "%s The run keeps its %s",
            *(error, counted(self._desired_nodes, "node")),
            extra=event_fields("rescaling-abandoned", reason=str(error)),
        )
        self._children.pop(name).cut()

    def _handle_exit(self, name: str, status: int, now: float) -> float | None:
        self._on_crash(self._tokens[name])
        if name in self._killed:
            self._killed.discard(name)
            return now
        if status in (BROKEN, STEPPED_DOWN) and self.config.zookeeper:
            return self._requeue_master(name, status, now)
        try:
            return self._handle_crash(name, status, now)
        except Unavailable as error:
            if name in self._layout or not name.startswith("node-"):
                raise
            self._abandon_rescale(name, error)
            return None

    def _requeue_master(self, name: str, status: int, now: float) -> float:
        """Return when to restart a master that has left the queue.

        Leaving the queue is not a fault, and may happen any number of times.
        """
        dead = self._children[name]
        dead.flush()
        if status == STEPPED_DOWN:
            self.restart_policy.record_step_down(name)
        log.info(
            "%s (pid %d) has %s; it queues up again",
            *(name, dead.pid),
            "stepped down for the next master"
            if status == STEPPED_DOWN
            else "lost its place in the queue of masters",
            extra=event_fields(
                "master-replaced", name=name, pid=dead.pid, stepped_down=status == STEPPED_DOWN
            ),
        )
        return now + REPLACE_AFTER_S

    def _details(self, name: str, status: int) -> Iterable[str]:
        if last_element := escape_controls(read_last_element(self.config, name)):
            yield f"  It was processing: {last_element}"
        if status in MAY_BE_DAMAGE:
            files = Path(self.config.state) / ("registry" if name == "master" else name)
            yield f"  Its files are in {files}."

    def _launch(self, name: str, token: str) -> ChildProcess:
        role, _, index = name.partition("-")
        config = replace(
            self.config,
            role=role,
            index=int(index or 0),
            careful=self.restart_policy.find_suspect_times(name),
            process=token,
            is_restart=name in self._children,
            futile_step_downs=self.restart_policy.count_futile_step_downs(name),
        )
        return ChildProcess(name, partial(self._fork, config), config.submitted_as)

    def _fork(self, config: ProcessConfig, pipes: Pipes) -> ProcessHandle:
        """Fork a process from the fork server. Start a fork server first if none runs."""
        if self._fork_server is None or self._fork_server.is_dead:
            self._fork_server = ForkServer(self._launch_fork_server)
            self._exits.watch_reports(self._fork_server.link.fileno())
        return self._fork_server.fork(config.to_json(), pipes)

    def _launch_fork_server(self, link: int) -> ChildProcess:
        def start(pipes: Pipes) -> ProcessHandle:
            own_pipes = {"lifeline_fd": pipes.lifeline, "keep_alive_fd": pipes.keep_alive}
            config = replace(self.config, role=FORK_SERVER, fork_server_fd=link, **own_pipes)
            return start_module(self._module, config.to_json(), pipes, link)

        return ChildProcess(FORK_SERVER, start, self.config.submitted_as)


NODE_PREFIX = "node-"


def stores_in(state: Path) -> Iterator[tuple[int, Path]]:
    """Yield (number, directory) for each node that has a store in a state directory."""
    for store in state.glob(f"{NODE_PREFIX}*/"):
        number = store.name.removeprefix(NODE_PREFIX)
        if number.isdecimal():
            yield int(number), store


def remove_outdated(state: Path, layout: Layout, running: Container[str]) -> None:
    """Remove the stores of nodes that precede a recorded layout, except those of `running` nodes.

    Layouts form one sequence, and the nodes of each have larger numbers than those of the previous
    layout. Therefore, under any leader, a node with a number below those of the layout never runs
    again. A node with a larger number may belong to an abandoned layout, or already to the next
    one: its store remains until a later layout is recorded.
    """
    for number, store in stores_in(state):
        if number < min(layout) and store.name not in running:
            shutil.rmtree(store, ignore_errors=True)
