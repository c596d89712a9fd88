"""Operator chains: steps without a shuffle between them. Each step pushes batches into the next."""

from __future__ import annotations

from collections.abc import Iterable

from driftline.engine.event_time import ENDED, NEVER, RESUMED, UNITS
from driftline.engine.flow.plan import Plan, Port, functions_follow
from driftline.engine.keygroups import Owners
from driftline.engine.labels import Label
from driftline.engine.operators.operator import KeyedStepFactory, Vertex
from driftline.engine.operators.outputs import Outbound, OutputEncoder, Shuffle, SinkStep
from driftline.engine.operators.steps import FailureReporter, FanOut, OutputReceiver, Step
from driftline.engine.texts import is_clock_time

FUTURE_US = UNITS["s"] * 24 * 3600
"""An event time that is this much later than the arrival of its record is probably wrong."""


class Chains:
    """All chains of a plan on one node.

    `entries[p]`: the first step of the chain at port p; `outbounds[p, q][n]`: the queue of batches
    from that chain to port q on the node at place n of the layout; `make_keyed_step`: the factory
    of keyed steps.
    """

    def __init__(
        self, plan: Plan, owners: Owners, barrier: OutputReceiver, make_keyed_step: KeyedStepFactory
    ) -> None:
        self.plan = plan
        self.barrier = barrier
        self.make_keyed_step = make_keyed_step
        self.failures = FailureReporter(barrier)
        self.owners = owners
        self.event_times: list[tuple[int, int, int]] = []
        """(front, time, event time) of each record or mark that raised the largest event time which
        this node knows of its source, and of the marks of idle periods. The node empties the list.
        """
        self._needs_event_times = bool(plan.waiting_ports)
        self._largest = [NEVER] * plan.fronts
        """Per front: the largest event time so far, in microseconds."""
        self.future_records: dict[int, tuple[int, int]] = {}
        """Front -> (time, event time) of the first record more than `FUTURE_US` ahead."""
        self.outbounds = {
            (upstream, port.number): [Outbound() for _ in range(owners.nodes)]
            for port in plan.ports
            for upstream in port.upstreams
        }
        self.entries: list[Step] = [_Chain(self, port).entry() for port in plan.ports]

    def record_event_times(self, timed: Iterable[tuple[Label, int]]) -> None:
        """Store the event times that may move a watermark, if the flow has operators with timers.

        `timed`: (root, event time) of records and marks of one source, in label order.
        """
        if not self._needs_event_times:
            return
        time, front, first_new = 0, 0, len(self.event_times)
        for (time, front), event_time in timed:
            if event_time <= RESUMED:
                self.event_times.append((front, time, event_time))
            elif event_time > self._largest[front]:
                self._largest[front] = event_time
                self.event_times.append((front, time, event_time))
        if self._largest[front] - time > FUTURE_US and is_clock_time(time):
            self._note_future(self.event_times[first_new:])

    def _note_future(self, event_times: Iterable[tuple[int, int, int]]) -> None:
        """Store the first event time that is far ahead of the arrival of its record."""
        for front, time, event_time in event_times:
            if event_time - time > FUTURE_US and event_time < ENDED:
                self.future_records.setdefault(front, (time, event_time))
                return


class _Chain:
    """Builder of the steps of one chain.

    A vertex has one step per operator whose outputs it receives. So the last steps of the chain can
    report an invalid output as a failure of the operator that made it.
    """

    def __init__(self, chains: Chains, port: Port) -> None:
        self.failures = chains.failures
        self.make_keyed_step = chains.make_keyed_step
        self.record_event_times = chains.record_event_times
        self._chains = chains
        self._flow = chains.plan.flow
        self._port = port
        self._steps: dict[tuple[int, str], Step] = {}
        """(number of a vertex, name of the operator that made its inputs) -> step."""

    def entry(self) -> Step:
        """Return the first step of the chain."""
        vertex = self._port.vertex
        return vertex.operator.make_step(vertex, self, OutputEncoder(vertex.name, None))

    def next_step(self, vertex: Vertex, encoder: OutputEncoder) -> Step:
        steps = [
            self._step(successor, encoder) for successor in self._flow.successors(vertex.number)
        ]
        return steps[0] if len(steps) == 1 else FanOut(steps)

    def sink_step(self, vertex: Vertex, encoder: OutputEncoder) -> Step:
        number = self._flow.sinks.index(vertex)
        return SinkStep(number, self._chains.barrier, encoder, self.failures)

    def functions_follow(self, vertex: Vertex) -> bool:
        return functions_follow(self._flow, vertex)

    def _step(self, vertex: Vertex, encoder: OutputEncoder) -> Step:
        identity = vertex.number, encoder.name
        if identity not in self._steps:
            is_keyed = vertex.key is not None
            self._steps[identity] = (
                self.shuffle_step(vertex, encoder)
                if is_keyed
                else vertex.operator.make_step(vertex, self, encoder)
            )
        return self._steps[identity]

    def shuffle_step(self, vertex: Vertex, encoder: OutputEncoder) -> Step:
        assert vertex.key is not None
        port = self._chains.plan.port_of(vertex.number)
        return Shuffle(
            *(vertex.name, vertex.key, vertex.key_line, self._chains.owners),
            self._chains.outbounds[self._port.number, port.number],
            *(self.failures, encoder),
        )
