"""Poller of the status of nodes and the master, or of other roles. Its role name is `poller`.

The poller has two tasks: it asks roles for their status, and it repeats a request to rescale while
`desired_nodes` is set. It takes `StatusReport` (polled roles) and `MasterAt` (agent). It sends
`AskReport` (polled roles), or `Rescale` (master). The poller is not a member of the run, and the
run does not depend on it. Nodes report how many outputs and dead letters their consumers have
stored in all. Invariant: `outputs` and `dead_letters` never decrease: the poller keeps the largest
total of each node, even of nodes that have left the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from driftline.coordinator.coordinator import Phase
from driftline.engine.wire.kinds import MASTER, NODE, POLLER
from driftline.engine.wire.messages import AskReport, MasterAt, Message, Rescale, StatusReport
from driftline.engine.wire.role import Role

STATUS_POLL_S = 1.0
"""Seconds between two requests to each member."""

SILENT_AFTER_S = 3.0
"""A status older than this many seconds counts as unknown."""


class StatusPoller(Role):
    """Poller of the `roles` whose addresses it knows: members of a run, and its master.

    `every_s`: polling interval in seconds; inf: poll only when `ask` is called; `name`: unique
    among the pollers of the run; `roles`: the roles to poll.
    """

    def __init__(
        self,
        every_s: float = STATUS_POLL_S,
        name: str = POLLER,
        roles: Sequence[str] = (MASTER, NODE),
    ) -> None:
        super().__init__(name)
        self.address = ""
        """Address of the poller, to which members send their answers."""
        self.reports: dict[str, StatusReport] = {}
        """Member -> its last answer."""
        self.desired_nodes = 0
        """Number of nodes to request from the master; 0: keep the current number."""
        self.first_desired_node = 0
        """The nodes of the requested layout are numbered from here; 0: the master chooses the next
        free number."""
        self.is_draining = False
        """Whether the command drains the run."""
        self._every_s = every_s
        self._roles = roles
        self._ask_at = 0.0
        """When to poll next (seconds, monotonic)."""
        self._answered_at: dict[str, float] = {}
        """Member -> time of its last answer (seconds, monotonic)."""
        self._unanswered: set[str] = set()
        """Members with an unanswered request."""
        self._largest_totals: dict[tuple[str, str], int] = {}
        """(figure, member) -> largest number that the member reported."""
        self._has_run = False
        """Whether the master has ever reported RUNNING; until then the run is starting."""

    def tick(self, now: float) -> float:
        if self._every_s == inf:
            return inf
        if now >= self._ask_at:
            self._ask_at = now + self._every_s
            self.ask()
        return self._ask_at

    def ask(self) -> None:
        """Send a request to every known member now."""
        for name in self.addresses:
            if name.partition("-")[0] in self._roles:
                self._unanswered.add(name)
                is_rescaling = self.desired_nodes and name == "master"
                rescale = Rescale(self.desired_nodes, self.first_desired_node, self.address)
                self.send(name, rescale if is_rescaling else AskReport(self.address))

    @property
    def answered(self) -> bool:
        """Whether every polled member has answered the last request."""
        return not self._unanswered

    def handle(self, sender: str, message: Message) -> None:
        if isinstance(message, MasterAt):
            self.addresses["master"] = message.address
        if not isinstance(message, StatusReport):
            return
        self.reports[sender] = message
        self._unanswered.discard(sender)
        self._answered_at[sender] = self.now
        self._has_run |= sender == "master" and message.state == Phase.RUNNING.value
        self.addresses.update(message.addresses)
        if message.required_nodes:
            self._retain_nodes(message.required_nodes)
        figures = dict(message.figures)
        for name in ("outputs", "dead_letters"):
            largest = self._largest_totals.get((name, sender), 0)
            self._largest_totals[name, sender] = max(largest, figures.get(name, 0))

    def _retain_nodes(self, nodes: Sequence[str]) -> None:
        """Forget all nodes except these; the totals of forgotten nodes still count."""
        for name in [name for name in self.addresses if name.startswith("node-")]:
            if name not in nodes:
                del self.addresses[name]
                self.reports.pop(name, None)
                self._unanswered.discard(name)

    def channel_lost(self, sender: str) -> None:
        """Do nothing: the poller receives only control messages, which have no sequence numbers."""

    def answered_at(self, name: str) -> float:
        """Return when a member last answered (seconds, monotonic); -inf for never."""
        return self._answered_at.get(name, -inf)

    @property
    def outputs(self) -> int:
        """Number of outputs that consumers have stored, by the last answers of the nodes.

        It includes the outputs of earlier runs in the same output directory.
        """
        return self._sum("outputs")

    @property
    def dead_letters(self) -> int:
        """Number of dead letters that consumers have stored, counted like `outputs`."""
        return self._sum("dead_letters")

    def master_figure(self, name: str) -> int:
        """Return a figure of the master's last answer; 0 if it is missing."""
        report = self.reports.get("master")
        return dict(report.figures).get(name, 0) if report is not None else 0

    def state(self, now: float) -> str:
        """Return the state of the run, for people."""
        master = self.reports.get("master")
        if master is None:
            return "starting"
        if self._is_silent("master", now):
            return "waiting for the master"
        reports = sorted(self.reports.items())
        nodes = {name: report.state for name, report in reports if name != "master"}
        if master.state == Phase.RUNNING.value:
            waiting = [name for name, state in nodes.items() if state == "waiting for the consumer"]
            summary = (
                f"waiting for the consumer of {', '.join(waiting)}"
                if waiting
                else ("draining" if self.is_draining else "running")
            )
            return with_obstacles(summary, master.obstacles)
        prefix = "recovering" if self._has_run else "starting"
        if master.state == Phase.LOADING.value:
            loading = [
                f"{name} is {'silent' if self._is_silent(name, now) else state}"
                for name, state in nodes.items()
                if state != "running" or self._is_silent(name, now)
            ]
            return f"{prefix}: {', '.join(loading) or master.waits_for}"
        if master.state in (Phase.GATHERING.value, Phase.WAITING.value, Phase.DECIDING.value):
            return f"{prefix}: {master.waits_for}"
        return with_obstacles(master.state, master.obstacles)

    def _sum(self, figure: str) -> int:
        return sum(total for (name, _), total in self._largest_totals.items() if name == figure)

    def _is_silent(self, name: str, now: float) -> bool:
        return now - self.answered_at(name) > SILENT_AFTER_S


def with_obstacles(state: str, obstacles: tuple[str, ...]) -> str:
    """Return a state, followed by the first obstacle and the number of others."""
    more = f", and {len(obstacles) - 1} more" if len(obstacles) > 1 else ""
    return f"{state} ({obstacles[0]}{more})" if obstacles else state
