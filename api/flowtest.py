"""`FlowTest`: drive a flow record by record, on real nodes in this process."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self, overload

from driftline.api.cluster import Cluster
from driftline.api.inputs import check_record
from driftline.connectors.sinks import MemoryConsumer
from driftline.engine.errors import DriftlineError, FlowError
from driftline.engine.event_time import (
    END,
    IDLE_MARK,
    RESUMED_MARK,
    time_mark,
    to_microseconds,
)
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.loading import check_not_loading, resolve_flow
from driftline.engine.keygroups import exact_key
from driftline.engine.operators.context import Failure
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.steps import FAILURES
from driftline.engine.policy import get_policy as policy_named
from driftline.engine.sources import QueueSource
from driftline.engine.state.managed import ListState, MapState, State, ValueState
from driftline.engine.state.table import StateTable
from driftline.engine.wire.bundles import Item

MESSAGE_S = 0.0005
"""Average virtual time of a message or a disk write, in seconds."""

MOMENT_S = 0.004
"""Maximum virtual time that `send(..., settle=False)` lets pass, in seconds."""

SNAPSHOT_INTERVAL_S = 0.05
"""Virtual time between snapshots, in seconds."""


class FlowTest:
    """A flow under test: send it records one by one, and inspect its outputs and states.

        >>> import operator
        >>> from driftline import Flow, FlowTest, ReducingState
        >>> flow = Flow("totals")
        >>> add = lambda order, total: (order["who"], total.add(order["price"]))
        >>> spent = ReducingState("spent", operator.add)
        >>> flow.source("orders").key_by("who").scan(add, spent, name="total").sink("totals")
        >>> with FlowTest(flow) as test:
        ...     test.send("orders", {"who": "Ann", "price": 5})
        ...     test.send("orders", {"who": "Bob", "price": 7})
        ...     test.kill("node-0")
        ...     test.send("orders", {"who": "Ann", "price": 1})
        ...     test.outputs("totals")
        ...     test.state("total", key="Ann")
        [('Ann', 5), ('Bob', 7), ('Ann', 6)]
        {'spent': 6}

    Nodes, master, fronts and consumer are those of a cluster, in this process and in virtual time,
    so a test never waits. Each record takes the next time 1, 2, ..., whatever its source. So does
    each event-time mark of `advance_to`, `let_idle` and `end`. Values pass through the wire format,
    so a list that is sent arrives as a tuple. All records are kept, and replayed after a kill.

    Methods that return outputs or states first call `settle`. If the run has failed earlier, they
    return the outputs and states as of the failure. The end of the `with` block calls `end`, unless
    the block or the run has failed.

    Args:
        flow: A Flow, or the name of one: ``"module:name"``, ``"file.py:name"``.
        nodes: Number of nodes.
        policy: Guarantee of the run. Under a policy without label order, `seed` determines the
            order of elements.
        seed: Determines message delays, and so the work that a kill interrupts. The same calls with
            the same seed have the same results.
        dead_letters: Elements whose function raises go to `failures`, and do not end the run.

    Raises:
        FlowError: The flow cannot run, `nodes` is less than 1, or there is no such policy.
    """

    def __init__(
        self,
        flow: Flow | str,
        *,
        nodes: int = 2,
        policy: str = "exactly-once",
        seed: int = 0,
        dead_letters: bool = False,
    ) -> None:
        check_not_loading("FlowTest(...)")
        if nodes < 1:
            raise FlowError(f"nodes={nodes}: a flow needs at least one")
        self._flow = resolve_flow(flow).validate()
        self._time = 0
        """The time of the last record or mark that was sent."""
        self._sources = {
            source.name: ScriptedSource(source.name, lambda: self._time)
            for source in self._flow.sources
        }
        self._idle: set[str] = set()
        """Sources that are idle until their next record."""
        self._consumer = MemoryConsumer()
        self._read_counts: dict[int, int] = {}
        """Sink -> number of the consumer's items, of all sinks, at the last `take` of this sink."""
        self._cluster = Cluster(
            self._flow,
            list(self._sources.values()),
            lambda barrier: self._consumer,
            policy_named(policy),
            nodes=nodes,
            snapshot_interval_s=SNAPSHOT_INTERVAL_S,
            dead_letters=dead_letters,
            delay_s=MESSAGE_S,
            seed=seed,
        )

    # Actions.

    @overload
    def send(self, record: object, /, *, settle: bool = True) -> None: ...
    @overload
    def send(self, source: str, record: object, /, *, settle: bool = True) -> None: ...
    def send(self, *source_and_record: object, settle: bool = True) -> None:
        """Send a record to a source.

        Args:
            source_and_record: The name of the source, optional if the flow has only one source; and
                the record.
            settle: Whether to return only once the record is processed and its outputs are
                delivered. If False, up to 4 ms of virtual time pass, as the seed determines, so a
                `kill` may interrupt the work on the record.

        Raises:
            FlowError: The flow has no such source, or the test has ended.
            PayloadError: The record has values outside the wire format.
            FunctionFailed: A function raised. The run has ended: later calls raise the error again,
                except `kill` and those that return outputs or states.
        """
        source = self._source(source_and_record[:-1], len(source_and_record))
        received = check_record(source.name, self._time + 1, source_and_record[-1])
        if source.name in self._idle:
            self._idle.remove(source.name)
            self._append(source, RESUMED_MARK)
        self._append(source, received)
        if settle:
            self.settle()
        else:
            self._cluster.pass_time(self._cluster.rng.random() * MOMENT_S)

    def advance_to(self, time: object) -> None:
        """Raise the watermarks of all sources with event times to `time` minus `max_delay`.

        So timers fire and windows end without another record. In a run, ticks of live sources do
        this.

        Args:
            time: Microseconds since 1970, a datetime or an ISO 8601 text; in UTC if it has no time
                zone.

        Raises:
            FlowError: `time` is not a time, no source has event times, or the test has ended.
            FunctionFailed: A function raised.
        """
        try:
            mark = time_mark(to_microseconds(time, "us"))
        except ValueError as error:
            raise FlowError(f"advance_to({time!r}): {error}") from None
        for name in self._sources_with_event_times():
            self._append(self._sources[name], mark)
        self.settle()

    def let_idle(self, source: str) -> None:
        """Mark a source as idle until its next record, as `idle_after` does in a run.

        Raises:
            FlowError: There is no such source, it has no event times, or the test has ended.
            FunctionFailed: A function raised.
        """
        if self._source((source,), 2).name not in self._sources_with_event_times():
            raise FlowError(f"source {source!r} has no event times")
        self._idle.add(source)
        self._append(self._sources[source], IDLE_MARK)
        self.settle()

    def _sources_with_event_times(self) -> list[str]:
        names = [vertex.name for vertex in self._flow.sources if vertex.event_time is not None]
        if not names:
            raise FlowError(f"no source of flow {self._flow.name!r} has event times")
        return names

    def _append(self, source: ScriptedSource, payload: object) -> None:
        """Append a record or a mark to a source.

        Raises FlowError if the test has ended, and the error that ended the run.
        """
        if self._cluster.error is not None:
            raise self._cluster.error
        if self._cluster.is_over:
            raise FlowError(f"flow {self._flow.name!r}: this test has ended, nothing can be sent")
        self._time += 1
        source.send(self._time, payload)
        self._cluster.wake_fronts()

    def kill(self, process: str) -> None:
        """Kill a process as ``kill -9`` does; it restarts, and the run recovers.

        Args:
            process: ``"node-0"``, ``"node-1"``, ..., ``"front-0"``, ... (one for each source),
                ``"master"`` or ``"consumer"``.

        Raises:
            FlowError: There is no such process, or the test has ended.
        """
        if self._cluster.is_over or self._cluster.error is not None:
            raise FlowError(
                f"flow {self._flow.name!r}: this test has ended, no process can be killed"
            )
        self._cluster.kill(process)

    def settle(self) -> None:
        """Process all records that were sent, and deliver their outputs.

        Raises:
            FunctionFailed: A function raised.
            Unavailable: The run makes no progress.
        """
        self._cluster.run_until(lambda: self._cluster.is_settled(self._time))

    def end(self) -> None:
        """End all sources, and run until all outputs are delivered.

        Afterwards outputs and states can still be inspected.

        Raises:
            FunctionFailed: A function raised.
        """
        for vertex in self._flow.sources:
            source = self._sources[vertex.name]
            if vertex.event_time is not None and not self._cluster.is_over:
                self._time += 1
                source.send(self._time, END)
            source.close()
        self._cluster.wake_fronts()
        self._cluster.run_until(lambda: self._cluster.is_over)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self._cluster.error is None:
            self.end()

    # Results.

    def outputs(self, sink: str | None = None) -> list[object]:
        """Return the values of all outputs of a sink so far, in label order.

        Args:
            sink: Name of the sink; optional if the flow has only one sink.

        Raises:
            FlowError: The flow has no such sink.
            FunctionFailed: A function raised.
        """
        return [item.value for item in self.items(sink)]

    def items(self, sink: str | None = None) -> list[Item]:
        """Return all outputs of a sink so far, with their labels, in label order.

        Arguments and errors are those of `outputs`.
        """
        return self._items(self._sink(sink))

    def take(self, sink: str | None = None) -> list[object]:
        """Return the values of a sink's outputs since its last `take`, in label order.

        Arguments and errors are those of `outputs`.
        """
        number = self._sink(sink)
        items = self._items(number, self._read_counts.get(number, 0))
        self._read_counts[number] = len(self._consumer.items)
        return [item.value for item in items]

    @property
    def failures(self) -> list[Failure]:
        """The elements whose function raised, in label order; needs `dead_letters=True`."""
        return [Failure.from_payload(item.value) for item in self._items(FAILURES)]

    def state(self, operator: str, key: object) -> dict[str, object]:
        """Return the states that an operator keeps for a key.

        Args:
            operator: Name of a keyed operator.
            key: The key.

        Returns:
            Name -> contents of each state of the operator: the value of a ValueState or
            ReducingState (None if it has none), a list for a ListState, a dict for a MapState.

        Raises:
            FlowError: There is no such operator, or it has no states, or `key` is not a valid key.
            FunctionFailed: A function raised.
        """
        vertex = self._operator(operator)
        self._settle()
        key = _as_key(key)
        for table in self._tables(vertex):
            if key in table:
                states = table.states(key)
                break
        else:
            states = tuple(state.for_key(key, []) for state in vertex.states)
        return {state.name: _plain(state) for state in states}

    def _tables(self, vertex: Vertex) -> list[StateTable]:
        return [node.pipeline.tables[vertex.name] for node in self._cluster.nodes]

    def _items(self, sink: int, since: int = 0) -> list[Item]:
        self._settle()
        items = [item for item in self._consumer.items[since:] if item.sink == sink]
        return sorted(items, key=lambda item: item.label)

    def _settle(self) -> None:
        """Settle, unless the run has failed; outputs before the failure stay readable."""
        if self._cluster.error is None:
            self.settle()

    # Names.

    def _source(self, names: tuple[object, ...], argument_count: int) -> ScriptedSource:
        """Return the source that a call names, or the only one if the call has one argument."""
        if argument_count == 1 and len(self._sources) == 1:
            return next(iter(self._sources.values()))
        known = f"flow {self._flow.name!r} has the sources {', '.join(self._sources)}"
        if argument_count != 2:
            raise FlowError(f"send(source, record): {known}")
        name = names[0]
        if not isinstance(name, str) or name not in self._sources:
            raise FlowError(f"there is no source {name!r}: {known}")
        return self._sources[name]

    def _sink(self, name: str | None) -> int:
        names = [sink.name for sink in self._flow.sinks]
        if name is None and len(names) == 1:
            return 0
        known = f"flow {self._flow.name!r} has the sinks {', '.join(names)}"
        if name is None:
            raise FlowError(f"say which sink: {known}")
        if name not in names:
            raise FlowError(f"there is no sink {name!r}: {known}")
        return names.index(name)

    def _operator(self, name: str) -> Vertex:
        keyed = {vertex.name: vertex for vertex in self._flow.vertices if vertex.states}
        if name not in keyed:
            raise FlowError(
                f"there is no operator {name!r} with states: flow {self._flow.name!r} has "
                f"{', '.join(keyed) or 'none'}"
            )
        return keyed[name]


def _as_key(key: object) -> object:
    """Convert a key to its form in the tables of nodes. Raises FlowError for an invalid key."""
    try:
        return exact_key(key)
    except DriftlineError as error:
        raise FlowError(f"{key!r} cannot be a key: {error}") from None


def _plain(state: State) -> object:
    """Return the contents of a state in plain Python types; a copy of a list or dict."""
    if isinstance(state, ValueState):
        return state.get()
    if isinstance(state, ListState):
        return list(state)
    assert isinstance(state, MapState)
    return state.copy()


class ScriptedSource(QueueSource):
    """The records that a test has sent to one source. All are kept for replay.

    `now`: returns the time of the last record or mark that the test has sent to any source. A
    source without new records promises, as live sources do, that it has no other record up to that
    time.
    """

    def __init__(self, name: str, now: Callable[[], int]) -> None:
        super().__init__(name)
        self._now = now

    def send(self, time: int, record: object) -> None:
        """Add a record. Precondition: its time is larger than all earlier ones."""
        self._records.append((time, record))

    def advance_to(self, time: int) -> int:
        return self._now() + 1

    def trim(self, time: int) -> None:
        """Do nothing: keep all records, since a test is short."""
