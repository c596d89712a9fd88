"""The flow: the logical graph that a user writes, checked while it is written.

    flow = Flow("word count")
    (
        flow.source("lines")
        .flat_map(lambda record: record["text"].split())
        .key_by(lambda word: word)
        .scan(count, ReducingState("count", operator.add), fields=("word", "count"))
        .sink("counts")
    )

Functions must be deterministic: no clock, no randomness (`Context.random` gives some), no I/O.
A stream whose payloads are tuples may name their `fields`; then `key_by` takes a name, and a sink
writes objects instead of arrays. A flow that cannot run raises one FlowError that names the
operator, as soon as it can be known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Generic, TypeVar

from driftline.engine.errors import FlowError
from driftline.engine.keygroups import GROUPS
from driftline.engine.state.managed import State

T = TypeVar("T")
U = TypeVar("U")

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
    """A logical graph under construction; `vertices` are in topological order by construction."""

    name: str
    groups: int = GROUPS
    vertices: list[Vertex] = field(default_factory=list)

    def source(self, name: str, *, fields: Sequence[str] | None = None) -> Stream[Any]:
        """An input of the flow; what it reads from, and so its type, is said when it is run."""
        return Stream(self, self._add("source", name, (), fields=fields))

    def union(self, first: Stream[T], *others: Stream[T]) -> Stream[T]:
        """All elements of several streams."""
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
class Stream(Generic[T]):
    """The output of an operator; its methods add the next one."""

    flow: Flow
    vertex: Vertex

    def map(
        self,
        function: Callable[[T], U],
        *,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]:
        """One output for each element."""
        return Stream(self.flow, self._next("map", name, function, fields))

    def flat_map(
        self,
        function: Callable[[T], Iterable[U]],
        *,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]:
        """Any number of outputs for each element."""
        return Stream(self.flow, self._next("flat_map", name, function, fields))

    def filter(self, predicate: Callable[[T], object], *, name: str | None = None) -> Stream[T]:
        """Only the elements for which the predicate is true."""
        return Stream(self.flow, self._next("filter", name, predicate, self.vertex.fields))

    def union(self, *others: Stream[T], name: str | None = None) -> Stream[T]:
        """All elements of this stream and the others."""
        streams = (self, *others)
        for other in others:
            if other.flow is not self.flow:
                raise FlowError(f"union {name or ''} joins streams of different flows")
        inputs = tuple(stream.vertex.number for stream in streams)
        same = {stream.vertex.fields for stream in streams}
        fields = self.vertex.fields if len(same) == 1 else None
        return Stream(self.flow, self.flow._add("union", name, inputs, fields=fields))

    def key_by(self, key: Callable[[T], object] | str | int) -> KeyedStream[T]:
        """Partition by a key: a function, a field's name, or a position in the payload."""
        return KeyedStream(self, self._key_function(key))

    def sink(self, name: str = "output") -> None:
        """An output of the flow."""
        self._next("sink", name, None, self.vertex.fields)

    def scan(self, *_: object, **__: object) -> Stream[object]:
        """Not on an unkeyed stream: state belongs to a key."""
        raise FlowError(f"scan after {self.vertex.name!r} needs a key: put .key_by(...) before it")

    process = scan

    def _next(
        self,
        kind: str,
        name: str | None,
        function: Function | None,
        fields: Sequence[str] | None,
    ) -> Vertex:
        return self.flow._add(kind, name, (self.vertex.number,), function, fields=fields)

    def _key_function(self, key: Callable[[T], object] | str | int) -> Function:
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
class KeyedStream(Generic[T]):
    """A stream partitioned by key: the place of state."""

    stream: Stream[T]
    key: Function

    def scan(
        self,
        function: Callable[..., U],
        *states: State,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]:
        """One output for each element: ``function(element, *states)``, in label order per key."""
        return self._keyed("scan", function, states, name, fields)

    def process(
        self,
        function: Callable[..., Iterable[U]],
        *states: State,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]:
        """Any number of outputs: ``function(context, element, *states)``, in label order."""
        return self._keyed("process", function, states, name, fields)

    def _keyed(
        self,
        kind: str,
        function: Function,
        states: tuple[State, ...],
        name: str | None,
        fields: Sequence[str] | None,
    ) -> Stream[U]:
        flow, before = self.stream.flow, self.stream.vertex
        shown = name or f"{kind}-{len(flow.vertices)}"
        seen: set[str] = set()
        for state in states:
            if not isinstance(state, State):
                raise FlowError(f"{kind} {shown!r}: {state!r} is not a state declaration")
            if state.name in seen:
                raise FlowError(f"{kind} {shown!r} declares state {state.name!r} twice")
            seen.add(state.name)
        vertex = flow._add(kind, name, (before.number,), function, self.key, states, fields)
        return Stream(flow, vertex)


def _fields(operator: str, fields: Sequence[str] | None) -> Fields:
    if fields is None:
        return None
    if isinstance(fields, str) or not all(isinstance(name, str) for name in fields):
        raise FlowError(f"{operator}: fields must be a sequence of names, not {fields!r}")
    if len(set(fields)) != len(fields):
        raise FlowError(f"{operator}: fields {', '.join(fields)} name one twice")
    return tuple(fields)
