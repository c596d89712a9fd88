"""The flow: the logical graph that a user writes, checked while it is written.

    flow = Flow("word count")
    (
        flow.source("lines", of=Line)
        .flat_map(lambda line: line["text"].split())
        .key_by(lambda word: word)
        .scan(count, ReducingState("count", operator.add), fields=("word", "count"))
        .sink("counts")
    )

Functions must be deterministic: no clock, no randomness (`Context.random` gives some), no I/O.
A stream whose payloads are tuples may name their `fields`; then `key_by` takes a name, and a sink
writes objects instead of arrays. A flow that cannot run raises one FlowError that names the
operator, as soon as it can be known.

A `Stream[T]` knows the type of its elements, and a keyed operator's function is called with the
states that are declared with it: so a type checker finds a function behind the wrong operator, and
a state that is missing, superfluous, or of another type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple, overload

from driftline.engine.errors import FlowError
from driftline.engine.flow.context import Context
from driftline.engine.keygroups import GROUPS
from driftline.engine.state.managed import State

K = TypeVar("K")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
Handles = TypeVarTuple("Handles")
"""The states that a function is handed: of the classes that are declared, in their order."""

Function = Callable[..., object]
Fields = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Vertex:
    """One operator of the logical graph; `inputs` are the numbers of the vertices before it."""

    number: int
    kind: str  # source, map, flat_map, filter, scan, process, union, sink
    name: str
    inputs: tuple[int, ...]
    function: Function | None = None
    key: Function | None = None
    states: tuple[State, ...] = ()
    fields: Fields = None

    @property
    def keyed(self) -> bool:
        """Whether its input is shuffled by key."""
        return self.key is not None


@dataclass(slots=True)
class Flow:
    """A logical graph under construction, from its sources to its sinks.

    Args:
        name: What it is called, in graphs and errors.
        groups: Key groups: the most nodes that its state can be parted among.
    """

    name: str
    groups: int = GROUPS
    vertices: list[Vertex] = field(default_factory=list)
    """In topological order, by construction."""

    @overload
    def source(
        self, name: str, *, of: type[T], fields: Sequence[str] | None = None
    ) -> Stream[T]: ...
    @overload
    def source(self, name: str, *, fields: Sequence[str] | None = None) -> Stream[Any]: ...
    def source(
        self, name: str, *, of: object = None, fields: Sequence[str] | None = None
    ) -> Stream[Any]:
        """An input of the flow; what it reads from is said when it is run.

        Args:
            name: Of the source, in graphs and errors.
            of: The type of its records, for type checkers: str, a TypedDict, tuple[str, int], ...
                Nothing checks at run time that records are of it. They arrive by the wire format:
                sequences as tuples. For what mypy takes for no class (a union, the alias of a
                tuple) annotate the stream: ``rows: Stream[Row] = flow.source("rows")``.
            fields: Names of the parts of its records, where those are tuples.

        Returns:
            The stream of records: of any type, if `of` does not tell.

        Raises:
            FlowError: For a name that is taken, for wrong fields.
        """
        return Stream(self, self._add("source", name, (), fields=fields))

    def union(self, first: Stream[T], *others: Stream[U]) -> Stream[T | U]:
        """All elements of several streams: `Stream.union`, written otherwise."""
        return first.union(*others)

    @property
    def sources(self) -> list[Vertex]:
        """Sources in the order of their declaration; source i is read by front i."""
        return [vertex for vertex in self.vertices if vertex.kind == "source"]

    @property
    def sinks(self) -> list[Vertex]:
        """Sinks in the order of their declaration."""
        return [vertex for vertex in self.vertices if vertex.kind == "sink"]

    def check_inputs(self, inputs: Sequence[object]) -> None:
        """Raises FlowError if there is not one input for each source."""
        count = len(self.sources)
        if len(inputs) != count:
            names = ", ".join(source.name for source in self.sources)
            raise FlowError(
                f"flow {self.name!r} has {count} sources ({names}): give {count} inputs (--input) "
                f"in this order, not {len(inputs)}"
            )

    def outputs_of(self, number: int) -> list[Vertex]:
        """The vertices after a vertex, in the order of their edges (a union may count twice)."""
        return [v for v in self.vertices for before in v.inputs if before == number]

    def validate(self) -> Flow:
        """Check what can only be known when the flow is whole. Raises FlowError."""
        if not self.vertices:
            raise FlowError(f"flow {self.name!r} is empty: begin with flow.source(name)")
        if not self.sinks:
            raise FlowError(f"flow {self.name!r} has no sink: end a stream with .sink(name)")
        for vertex in self.vertices:
            if vertex.kind != "sink" and not self.outputs_of(vertex.number):
                raise FlowError(
                    f"{vertex.kind} {vertex.name!r} of flow {self.name!r} leads nowhere: "
                    "end it with .sink(name) or leave it out"
                )
        return self

    def _add(
        self,
        kind: str,
        name: str | None,
        inputs: tuple[int, ...],
        function: Function | None = None,
        key: Function | None = None,
        states: tuple[State, ...] = (),
        fields: Sequence[str] | None = None,
    ) -> Vertex:
        number = len(self.vertices)
        name = name or f"{kind}-{number}"
        if any(vertex.name == name for vertex in self.vertices):
            raise FlowError(f"flow {self.name!r} already has an operator named {name!r}")
        if kind in ("map", "flat_map", "filter", "scan", "process") and not callable(function):
            raise FlowError(f"{kind} {name!r} needs a function, not {function!r}")
        chosen = _fields(f"{kind} {name!r}", fields)
        vertex = Vertex(number, kind, name, inputs, function, key, states, chosen)
        self.vertices.append(vertex)
        return vertex


@dataclass(frozen=True, slots=True)
class Stream(Generic[T_co]):
    """The output of an operator; its methods add the next one."""

    flow: Flow
    vertex: Vertex

    def map(
        self,
        function: Callable[[T_co], U],
        *,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]:
        """One output for each element.

        Args:
            function: From an element to the output.
            name: Of the operator, in graphs and errors; made up if there is none.
            fields: Names of the parts of the outputs, where those are tuples.

        Returns:
            The stream of outputs.

        Raises:
            FlowError: For what is no function, for a name that is taken, for wrong fields.
        """
        return Stream(self.flow, self._next("map", name, function, fields))

    def flat_map(
        self,
        function: Callable[[T_co], Iterable[U]],
        *,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]:
        """Any number of outputs for each element.

        Arguments, result and errors are those of `map`, but that the function returns, or yields,
        the outputs.
        """
        return Stream(self.flow, self._next("flat_map", name, function, fields))

    def filter(
        self, predicate: Callable[[T_co], object], *, name: str | None = None
    ) -> Stream[T_co]:
        """Only the elements for which the predicate is true; they keep their fields.

        Raises:
            FlowError: For what is no function, for a name that is taken.
        """
        return Stream(self.flow, self._next("filter", name, predicate, self.vertex.fields))

    def union(self, *others: Stream[U], name: str | None = None) -> Stream[T_co | U]:
        """All elements of this stream and the others, in label order.

        A function after streams of different types tells their elements apart, by a tag for
        example (`examples/join.py`). The union has fields if all the streams have the same.
        Type checkers see one type in several `others`: for three types, join two and then one.

        Raises:
            FlowError: For streams of another flow, or partitioned by key; for a name that is taken.
        """
        for other in others:
            if not isinstance(other, Stream):
                raise FlowError(
                    f"union {name or ''} joins streams before .key_by, not a {type(other).__name__}"
                )
            if other.flow is not self.flow:
                raise FlowError(f"union {name or ''} joins streams of different flows")
        vertices = [self.vertex, *(stream.vertex for stream in others)]
        inputs = tuple(vertex.number for vertex in vertices)
        same = {vertex.fields for vertex in vertices}
        fields = self.vertex.fields if len(same) == 1 else None
        return Stream(self.flow, self.flow._add("union", name, inputs, fields=fields))

    @overload
    def key_by(self, key: Callable[[T_co], K]) -> KeyedStream[K, T_co]: ...
    @overload
    def key_by(self, key: str | int) -> KeyedStream[Any, T_co]: ...
    def key_by(self, key: Callable[[T_co], object] | str | int) -> KeyedStream[Any, T_co]:
        """Partition by a key, for `scan` and `process`.

        Args:
            key: A function from an element to its key, a field's name (where there are no fields,
                a key of a dict), or a position in the element.

        Raises:
            FlowError: For what is none of these, for a name that is not among the fields.
        """
        return KeyedStream(self, self._key_function(key))

    def sink(self, name: str = "output") -> None:
        """An output of the flow.

        Raises:
            FlowError: For a name that is taken.
        """
        self._next("sink", name, None, self.vertex.fields)

    if not TYPE_CHECKING:  # type checkers tell that an unkeyed stream has neither

        def scan(self, *_: object, **__: object) -> None:
            """Not on an unkeyed stream: state belongs to a key."""
            after = self.vertex.name
            raise FlowError(f"scan after {after!r} needs a key: put .key_by(...) before it")

        process = scan

    def _next(
        self,
        kind: str,
        name: str | None,
        function: Function | None,
        fields: Sequence[str] | None,
    ) -> Vertex:
        return self.flow._add(kind, name, (self.vertex.number,), function, fields=fields)

    def _key_function(self, key: Callable[[T_co], object] | str | int) -> Function:
        fields = self.vertex.fields
        if isinstance(key, str) and fields is not None:
            if key not in fields:
                raise FlowError(
                    f"key_by({key!r}) after {self.vertex.name!r}: unknown key, "
                    f"its fields are {', '.join(fields)}"
                )
            return itemgetter(fields.index(key))
        if isinstance(key, (str, int)) and not isinstance(key, bool):
            return itemgetter(key)
        if not callable(key):
            raise FlowError(
                f"key_by({key!r}) after {self.vertex.name!r}: "
                "a key is a function, a field's name or a position"
            )
        return key


@dataclass(frozen=True, slots=True)
class KeyedStream(Generic[K, T]):
    """A stream of T partitioned by keys K: the place of state."""

    stream: Stream[T]
    key: Function

    def scan(
        self,
        function: Callable[[T, *Handles], U],
        *states: *Handles,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]:
        """One output for each element, in label order per key.

        Args:
            function: From an element, and the states of its key in the order in which they are
                declared here, to the output.
            states: Declarations, such as ``ValueState[int]("last")``.
            name: Of the operator, in graphs and errors; made up if there is none.
            fields: Names of the parts of the outputs, where those are tuples.

        Returns:
            The stream of outputs.

        Raises:
            FlowError: For what is no function or no state, for a name that is taken, for wrong
                fields.
        """
        return self._keyed("scan", function, states, name, fields)

    def process(
        self,
        function: Callable[[Context, T, *Handles], Iterable[U]],
        *states: *Handles,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]:
        """Any number of outputs for each element, in label order per key.

        Arguments, result and errors are those of `scan`, but that the function gets a Context
        before the element, and returns, or yields, the outputs.
        """
        return self._keyed("process", function, states, name, fields)

    if not TYPE_CHECKING:  # type checkers tell that a keyed stream has none of these

        def map(self, *_: object, **__: object) -> None:
            """Not on a keyed stream: keys are for states."""
            raise FlowError(
                f"after .key_by(...) of {self.stream.vertex.name!r} comes .scan(...) or "
                ".process(...): put what needs no state before .key_by, or after them"
            )

        flat_map = filter = union = key_by = sink = map

    def _keyed(
        self,
        kind: str,
        function: Function,
        states: tuple[object, ...],
        name: str | None,
        fields: Sequence[str] | None,
    ) -> Stream[U]:
        flow, before = self.stream.flow, self.stream.vertex
        shown = name or f"{kind}-{len(flow.vertices)}"
        declared: dict[str, State] = {}
        for state in states:
            if not isinstance(state, State):
                raise FlowError(f"{kind} {shown!r}: {state!r} is not a state declaration")
            if state.name in declared:
                raise FlowError(f"{kind} {shown!r} declares state {state.name!r} twice")
            declared[state.name] = state
        vertex = flow._add(
            kind, name, (before.number,), function, self.key, tuple(declared.values()), fields
        )
        return Stream(flow, vertex)


def _fields(operator: str, fields: Sequence[str] | None) -> Fields:
    if fields is None:
        return None
    if isinstance(fields, str) or not all(isinstance(name, str) for name in fields):
        raise FlowError(f"{operator}: fields must be a sequence of names, not {fields!r}")
    if len(set(fields)) != len(fields):
        raise FlowError(f"{operator}: fields {', '.join(fields)} name one twice")
    return tuple(fields)
