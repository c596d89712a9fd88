"""`FlowTest`: a flow driven record by record, on real nodes in this process."""

from __future__ import annotations

from types import TracebackType
from typing import Self, overload

from driftline.deploy.api.cluster import Cluster
from driftline.deploy.api.inputs import check_record
from driftline.deploy.api.scripted import ScriptedSource
from driftline.engine.errors import DriftlineError, FlowError
from driftline.engine.flow.context import Failure
from driftline.engine.flow.flow import Flow, Vertex
from driftline.engine.flow.loading import check_not_loading, load_flow
from driftline.engine.order.steps import FAILURES
from driftline.engine.policy import policy as policy_named
from driftline.engine.sinks import MemoryConsumer
from driftline.engine.state.managed import ListState, MapState, State, StateTable, ValueState
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import travelled

MESSAGE_S = 0.0005
"""How long a message or a write to a disk takes on average, in virtual time."""

MOMENT_S = 0.004
"""What passes at most, in virtual time, after a record that is not waited for."""

CHECKPOINT_S = 0.05
"""Virtual time between snapshots."""


class FlowTest:
    """A flow whose records a test sends one by one, and whose outputs and states it looks at.

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

    Nodes, master, fronts and consumer are those of a cluster, in this process and in virtual time:
    nothing has to be waited for. The order of the calls of `send` is the order of the labels, over
    all sources: the record of the n-th call has time n. Values pass the wire format, so a list that
    is sent arrives as a tuple. Everything sent is kept, and read again when a process is killed.

    What looks at outputs or states first lets everything that was sent be worked off.

    Arguments:
        flow: a Flow, or where one is: ``"module:name"``, ``"file.py:name"``.
        nodes: how many.
        policy: what is guaranteed; without an order, `seed` decides which one elements come in.
        seed: decides how long messages take, and so what a kill hits. The same calls with the same
            seed do the same.
        dead_letters: elements whose function raises are in `failures`, instead of raising.

    Raises FlowError for a flow that cannot run.
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
        self._flow = (load_flow(flow) if isinstance(flow, str) else flow).validate()
        self._time = 0
        """Of the record that was sent last."""
        self._sources = {
            source.name: ScriptedSource(source.name, lambda: self._time)
            for source in self._flow.sources
        }
        self._consumer = MemoryConsumer()
        self._taken: dict[int, int] = {}
        """Per sink, how many items of the consumer `take` has looked at."""
        self._cluster = Cluster(
            self._flow,
            list(self._sources.values()),
            lambda barrier: self._consumer,
            policy_named(policy),
            nodes=nodes,
            checkpoint_s=CHECKPOINT_S,
            dead_letters=dead_letters,
            delay_s=MESSAGE_S,
            seed=seed,
        )

    # What happens.

    @overload
    def send(self, record: object, /, *, settle: bool = True) -> None: ...
    @overload
    def send(self, source: str, record: object, /, *, settle: bool = True) -> None: ...
    def send(self, *source_and_record: object, settle: bool = True) -> None:
        """Send a record to a source; its name may be left out where there is one source.

        `settle`: let it be worked off to its end. Otherwise a moment passes, which the seed
        decides: then it may be anywhere on its way, for a `kill` to hit.

        Raises FlowError for a source that is not in the flow, PayloadError for a record that
        cannot travel, FunctionFailed if a function raises that is given it (again at each further
        call: the run has stopped).
        """
        source = self._source(source_and_record[:-1], len(source_and_record))
        record = source_and_record[-1]
        if self._cluster.failed is not None:
            raise self._cluster.failed
        if self._cluster.over:
            raise FlowError(f"flow {self._flow.name!r}: this test has ended, nothing can be sent")
        check_record(source.name, self._time + 1, record)
        self._time += 1
        source.send(self._time, travelled(record))
        self._cluster.wake_fronts()
        if settle:
            self.settle()
        else:
            self._cluster.pass_time(self._cluster.chance.random() * MOMENT_S)

    def kill(self, process: str) -> None:
        """End a process as ``kill -9`` does; it is started again, and the run recovers.

        The processes are node-0, node-1, ..., front-0, ... (one for each source), master and
        consumer. Raises FlowError for another name, or when the test has ended.
        """
        if self._cluster.over or self._cluster.failed is not None:
            raise FlowError(f"flow {self._flow.name!r}: this test has ended, nobody can be killed")
        self._cluster.kill(process)

    def settle(self) -> None:
        """Let everything that was sent be worked off and delivered. Raises what `send` raises."""
        self._cluster.run_until(lambda: self._cluster.is_settled(self._time))

    def end(self) -> None:
        """Let the sources end and the run finish. Outputs can still be looked at. Raises what
        `send` raises."""
        for source in self._sources.values():
            source.close()
        self._cluster.wake_fronts()
        self._cluster.run_until(lambda: self._cluster.over)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self._cluster.failed is None:
            self.end()

    # What can be seen.

    def outputs(self, sink: str | None = None) -> list[object]:
        """The values of all outputs of a sink so far, in label order.

        The name may be left out where there is one sink. Raises FlowError for a sink that is not
        in the flow, and what `send` raises.
        """
        return [item.value for item in self.items(sink)]

    def items(self, sink: str | None = None) -> list[Item]:
        """The same, with labels."""
        return self._items(self._sink(sink))

    def take(self, sink: str | None = None) -> list[object]:
        """The values of the outputs of a sink since `take` was last called for it."""
        number = self._sink(sink)
        found = self._items(number, self._taken.get(number, 0))
        self._taken[number] = len(self._consumer.items)
        return [item.value for item in found]

    @property
    def failures(self) -> list[Failure]:
        """The elements whose function has raised, in label order, if they are dead letters."""
        return [Failure(*item.value) for item in self._items(FAILURES)]  # type: ignore[misc]

    def state(self, operator: str, key: object) -> dict[str, object]:
        """What a keyed operator remembers of a key: the value of each of its states, by name.

        A plain value: of a ValueState or ReducingState what it holds, None if that is nothing; of
        a ListState a list; of a MapState a dict. Raises FlowError for an operator that has no
        states, and what `send` raises.
        """
        vertex = self._operator(operator)
        self._let_settle()
        key = _as_key(key)
        for table in self._tables(vertex):
            if key in table:
                states = table.states(key)
                break
        else:
            states = tuple(state.fresh(key, []) for state in vertex.states)
        return {state.name: _plain(state) for state in states}

    def _tables(self, vertex: Vertex) -> list[StateTable]:
        return [node.assembly.tables[vertex.name] for node in self._cluster.nodes]

    def _items(self, sink: int, since: int = 0) -> list[Item]:
        self._let_settle()
        items = [item for item in self._consumer.items[since:] if item.sink == sink]
        return sorted(items, key=lambda item: item.label)

    def _let_settle(self) -> None:
        """After a failure, what was delivered before it can still be looked at."""
        if self._cluster.failed is None:
            self.settle()

    # Names.

    def _source(self, names: tuple[object, ...], arguments: int) -> ScriptedSource:
        if arguments == 1 and len(self._sources) == 1:
            return next(iter(self._sources.values()))
        known = f"flow {self._flow.name!r} has the sources {', '.join(self._sources)}"
        if arguments != 2:
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
    """A key as it arrives. Raises FlowError for what can be none."""
    try:
        arrived = travelled(key)
        hash(arrived)
    except (DriftlineError, TypeError) as error:
        raise FlowError(f"{key!r} can be no key: {error}") from None
    return arrived


def _plain(state: State) -> object:
    """What a state holds, as an object of its own."""
    if isinstance(state, ValueState):
        return state.get()
    if isinstance(state, ListState):
        return list(state)
    assert isinstance(state, MapState)
    return state.copy()
