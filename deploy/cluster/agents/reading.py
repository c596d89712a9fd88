"""Reading the log lines of a cluster: each agent is asked for those of its host, by flow.

A `LogReader` reads from one agent. Takes: `Lines`. Gives: `AskLines`. Invariant: what it has read
of a flow is whole lines, each once, in their order; a place that is no more is passed over.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from driftline.deploy.cluster.agents.logbook import AGENT_ITSELF
from driftline.deploy.cluster.flows.asking import keyless
from driftline.deploy.cluster.flows.submissions import agents, submission_of, submissions
from driftline.deploy.cluster.tree.tree import Tree
from driftline.deploy.host.logs import LineFormatter, from_child
from driftline.deploy.host.loop.runtime import Runtime
from driftline.deploy.host.sockets.transport import LOCAL, Network
from driftline.engine.errors import Unavailable
from driftline.engine.ui.near import did_you_mean
from driftline.engine.visible import visible, visible_json
from driftline.engine.wire.messages import AskLines, Lines, Message
from driftline.engine.wire.party import Party
from driftline.engine.wire.senders import AGENT, WATCH

ANSWER_S = 2.0
"""How long agents may take to answer."""

ASK_AGAIN_S = 0.5
"""A question or an answer may be lost, as another reader may have the same name."""

FOLLOW_EVERY_S = 1.0

_LAST = -1


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line, of a process of this agent, or of the agent itself."""

    agent: str
    flow: str
    record: logging.LogRecord
    told: dict[str, object]
    """Its JSON object."""

    @staticmethod
    def of(agent: str, flow: str, line: bytes) -> LogLine | None:
        """Decode a line; None if it is none."""
        record = from_child(line, agent)
        if record is None:
            return None
        told: dict[str, object] = json.loads(line)
        if told.get("process") != "agent":
            record.processName = f"{agent}/{told.get('process')}"
        return LogLine(agent, flow, record, told)

    def as_text(self, *, named: bool = False) -> str:
        """The line for people; `named`: it says of which flow it is, as there are several."""
        record = self.record
        if named and self.flow:
            record = copy(record)
            record.processName = f"{self.flow} {record.processName}"
        return LineFormatter(as_json=False).format(record)

    def as_json(self) -> str:
        """The line as a JSON object, which says where it is from."""
        fields = {**self.told, "agent": self.agent, "flow": self.flow}
        return visible_json(json.dumps(fields, ensure_ascii=False))


class LogReader(Party):
    """Reads from one agent."""

    def __init__(self, agent: str, number: int, count: int) -> None:
        """`count`: how many of the last lines of each flow it begins with."""
        super().__init__(f"{WATCH}-logs-{number}")
        self.agent = agent
        self.address = ""
        """Its own."""
        self.found: list[LogLine] = []
        """Lines that nobody has taken yet."""
        self.wants: set[str] = set()
        """The flows whose lines it waits for."""
        self._count = count
        self._places: dict[str, int] = {}

    def tick(self, now: float) -> float:
        return now + ASK_AGAIN_S

    def ask(self) -> None:
        """Ask for what it waits for."""
        for flow in self.wants:
            since = self._places.get(flow, _LAST)
            self.send(AGENT, AskLines(self.address, flow, since, self._count))

    def handle(self, sender: str, message: Message) -> None:
        if not isinstance(message, Lines) or message.flow not in self.wants:
            return
        flow = message.flow
        if message.since != self._places.get(flow, _LAST):
            return  # the answer to an earlier question
        self._places[flow] = message.until
        lines = (LogLine.of(self.agent, flow, line) for line in message.lines.splitlines())
        self.found += [line for line in lines if line is not None]
        if not message.more:
            self.wants.discard(flow)

    def channel_lost(self, sender: str) -> None:
        """Do nothing: all its messages are control messages."""


class LogLines:
    """The lines of a cluster, or of one flow, or one agent. Raises Unavailable for unknown ones."""

    def __init__(
        self,
        tree: Tree,
        sockets: Path,
        network: Network = LOCAL,
        *,
        flow: str = "",
        agent: str = "",
        count: int,
        answer_s: float = ANSWER_S,
    ) -> None:
        """`sockets`: an empty folder."""
        self._tree = tree
        self._sockets = sockets
        self._network = network
        self._flow = flow
        self._agent = agent
        self._count = count
        self._answer_s = answer_s
        self._readers: dict[str, LogReader] = {}
        self.silent: frozenset[str] = frozenset()
        """The agents that did not answer last."""
        self.away: frozenset[str] = frozenset()
        """The agents with places of these flows that do not live."""
        self.several = False
        """Whether there are lines of more than one flow."""
        if flow:
            submission_of(tree, flow)
        alive = agents(tree)
        if why := keyless(network, alive):
            raise Unavailable(f"no lines can be read: {why}")
        names = [each.name for each in alive]
        if agent and agent not in names:
            known = ", ".join(map(visible, names)) or "none at all"
            near = did_you_mean(agent, names)
            raise Unavailable(f"{tree.where} has no agent {agent!r} now{near}; it has {known}")

    def read(self, *, follow: bool) -> Generator[list[LogLine], None, None]:
        """The last lines, by time; with `follow`, those that come later, too."""
        with ExitStack() as stack:
            runtime = Runtime(transport=self._network.transport(self._sockets))
            stack.callback(runtime.close, linger_ms=0)
            again_at = monotonic() + FOLLOW_EVERY_S
            yield self._look(runtime)[-self._count :]
            while follow:
                while (left := again_at - monotonic()) > 0:
                    runtime.step(wait_s=left)
                again_at = monotonic() + FOLLOW_EVERY_S
                yield self._look(runtime)

    def _look(self, runtime: Runtime) -> list[LogLine]:
        """The lines that are new."""
        shown = [each for each in submissions(self._tree) if self._flow in ("", each.name)]
        flows = [each.name for each in shown]
        self.several = len(flows) > 1
        if not self._flow:
            flows.append(AGENT_ITSELF)
        alive = agents(self._tree)
        places = {place for each in shown for place in (*each.nodes, *each.fronts)}
        self.away = frozenset() if self._agent else frozenset(places - {a.name for a in alive})
        asked = []
        for agent in alive:
            if self._agent in ("", agent.name) and agent.address:
                reader = self._reader(agent.name, runtime)
                reader.addresses[AGENT] = agent.address
                reader.wants.update(flows)
                asked.append(reader)
        give_up_at, ask_at = monotonic() + self._answer_s, 0.0
        while any(reader.wants for reader in asked) and (now := monotonic()) < give_up_at:
            if now >= ask_at:
                ask_at = now + ASK_AGAIN_S
                for reader in asked:
                    reader.ask()
            before = sum(len(reader.found) for reader in asked)
            runtime.step(wait_s=0.05)
            if sum(len(reader.found) for reader in asked) > before:
                ask_at = min(ask_at, monotonic() + 0.05)  # there may be more
        self.silent = frozenset(reader.agent for reader in asked if reader.wants)
        lines = [line for reader in asked for line in reader.found]
        for reader in asked:
            reader.found = []
            reader.wants.clear()
        return sorted(lines, key=lambda line: line.record.created)

    def _reader(self, agent: str, runtime: Runtime) -> LogReader:
        if agent not in self._readers:
            number = len(self._readers)
            reader = self._readers[agent] = LogReader(agent, number, self._count)
            at = self._network.inbox(reader.name, str(self._sockets))
            reader.address = runtime.add(reader, at)
        return self._readers[agent]
