"""Random flows: a seed draws a flow of named combinators, with keyed stages of every state type.

    driftline simulate driftline.simulation.scenarios.drawn --seed 7

All elements are (word, number), so that any step can follow any other. The name of a step describes
the step, because the flow of a failing seed is printed as text. In a flow for policies without an
order (`any_order`), only steps before the first keyed stage drop or multiply elements, or raise. So
the order of arrival decides values, but not which labels exist.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from random import Random

from msgspec import Struct

from driftline.engine.flow.flow import Flow
from driftline.engine.flow.streams import KeyedStream, Stream
from driftline.engine.operators.count_windows import CountWindow
from driftline.engine.operators.joins import HOW
from driftline.engine.operators.registry import OPERATORS
from driftline.engine.state.managed import ListState, MapState, ReducingState, State, ValueState
from driftline.simulation.scenarios.functions import (
    AGGREGATES,
    FLAT_MAPS,
    KEYS,
    MAPS,
    PREDICATES,
    PROCESSES,
    SCANS,
    TIMED,
    WINDOWS,
    Element,
    event_time,
    in_rounds,
    in_table,
    of_pair,
    of_row,
)

MODULE = "driftline.simulation.scenarios.drawn"

Elements = Stream[Element]

OUTPUTS_MAX = 8
"""A stream with about this many elements per record gets no further step that multiplies them."""

_WITHOUT_FUNCTION = [
    operator_class.kind
    for operator_class in OPERATORS
    if hasattr(KeyedStream, operator_class.kind)
    and not (operator_class.takes_function or fields(operator_class))
]
"""Kinds of keyed operators that need only a key: no function and no parameter."""


def draw_flow(seed: int, *, any_order: bool = False, loops: bool = True) -> Flow:
    """Return the flow of a seed.

    `any_order`: the labels of its outputs must not depend on the order of arrival; `loops`: it may
    have iterations.
    """
    timer_rng = None if any_order else Random(f"timers {seed}")
    if timer_rng is not None and timer_rng.random() < 0.7:
        timer_rng = None
    return _FlowBuilder(
        Random(f"flow {seed}"), Flow(f"drawn-{seed}"), any_order, loops and not any_order, timer_rng
    ).draw()


class _Branch(Struct):
    """Stream without a sink so far, and its approximate number of elements per record."""

    stream: Elements
    elements: int


class _FlowBuilder(Struct):
    """Draws one flow; `any_order`, `loops`: see `draw_flow`."""

    rng: Random
    flow: Flow
    any_order: bool
    loops: bool
    timer_rng: Random | None
    """Draws stages with timers, apart from the other draws; None: sources have no event times."""
    steps: int = 0
    """Number of named steps so far; it begins the name of each step."""

    def draw(self) -> Flow:
        """Draw sources, then stages that join, branch and keep state, then sinks."""
        rng = self.rng
        branches = [self._source(i) for i in range(rng.choice((1, 1, 2, 2, 3)))]
        for branch in branches:
            self._add_steps(branch, free=True)
        for _ in range(rng.choice((1, 1, 2, 2, 3))):
            self._join_and_branch(branches)
            branch = rng.choice(branches)
            self._add_stage(branch)
            self._add_steps(branch, free=not self.any_order)
        for i, branch in enumerate(branches):
            branch.stream.sink(f"sink-{i}")
        return self.flow.validate()

    def _source(self, number: int) -> _Branch:
        if self.timer_rng is None:
            records = self.flow.source(f"source-{number}")
        else:
            delay = timedelta(microseconds=self.timer_rng.choice((0, 20, 60)))
            marks_rng = Random(f"marks of {self.flow.name} {number}")
            idle_after = timedelta(milliseconds=40) if marks_rng.random() < 0.5 else None
            tick = timedelta(milliseconds=80) if marks_rng.random() < 0.3 else None
            if tick is not None:
                delay = timedelta(milliseconds=marks_rng.choice((0, 200, 500)))
            records = self.flow.source(
                f"source-{number}",
                event_time=event_time if tick is None or marks_rng.random() < 0.5 else None,
                unit="us",
                max_delay=delay,
                idle_after=idle_after,
                tick=tick,
            )
        if self.rng.random() < 0.5:
            return _Branch(records.map(_element, name=self._name("key and id of")), 1)
        return _Branch(records.flat_map(_words, name=self._name("words of")), 4)

    def _join_and_branch(self, branches: list[_Branch]) -> None:
        rng = self.rng
        if len(branches) > 1 and rng.random() < 0.6:
            one, other = branches[0], branches.pop()
            if self.timer_rng is not None and self.timer_rng.random() < 0.6:
                one.stream = self._join(one.stream, other.stream, self.timer_rng)
                one.elements *= 2
            else:
                one.stream = one.stream.union(other.stream, name=self._name("union"))
                one.elements += other.elements
        if len(branches) < 3 and rng.random() < 0.6:
            branch = rng.choice(branches)
            branches.append(_Branch(branch.stream, branch.elements))
            self._map(branches[-1])

    def _join(self, one: Elements, other: Elements, rng: Random) -> Elements:
        """Join two streams by a drawn operator."""
        kind, name, on = rng.choice(("join", "as_of", "lookup")), self._name("join"), 0
        extra_rng = Random(f"join in {self.flow.name} {len(self.flow.vertices)}")
        if extra_rng.random() < 0.3:
            kind = extra_rng.choice(("join of windows", "with_broadcast"))
        if kind == "with_broadcast":
            return one.with_broadcast(other, in_table, on=on, copies=3, name=name)
        if kind == "join of windows":
            how = extra_rng.choice(sorted(HOW))
            pairs = one.join(other, on=on, window=extra_rng.choice(WINDOWS), how=how, name=name)
        elif kind == "lookup":
            pairs = one.lookup(other, on=on, name=name)
        elif kind == "as_of":
            tolerance = rng.choice((None, timedelta(microseconds=40)))
            pairs = one.as_of(other, on=on, tolerance=tolerance, name=name)
        else:
            within = timedelta(microseconds=-20), timedelta(microseconds=rng.choice((-5, 10)))
            how = rng.choice(("inner", "left", "right", "outer"))
            pairs = one.join(other, on=on, within=within, how=how, name=name)
        return pairs.map(of_pair, name=self._name(f"pair of {kind}"))

    def _add_stage(self, branch: _Branch) -> None:
        rng = self.rng
        keyed = branch.stream.key_by(rng.choice(KEYS).function)
        iteration_rng = Random(f"iteration in {self.flow.name} {len(self.flow.vertices)}")
        if self.loops and branch.elements < OUTPUTS_MAX and iteration_rng.random() < 0.1:
            branch.stream = keyed.iterate(
                in_rounds,
                ReducingState[int]("total", operator.add),
                MapState[str, int]("seen"),
                max_rounds=20,
                name=self._name("iteration"),
            )
            branch.elements *= 3
            return
        extra_rng = Random(f"distinct of {self.flow.name} {len(self.flow.vertices)}")
        if self.timer_rng is not None and extra_rng.random() < 0.25:
            ttl = timedelta(microseconds=extra_rng.choice((5, 40)))
            branch.stream = keyed.distinct(ttl=ttl, name=self._name("distinct in time"))
            return
        if self.timer_rng is not None and extra_rng.random() < 0.1:
            if extra_rng.random() < 0.5:
                top = keyed.top(2, by=1, name=self._name("top 2"))
                branch.stream = top.map(of_row, name=self._name("row of top"))
            else:
                lists = keyed.window(CountWindow(3)).collect(name=self._name("lists of 3"))
                branch.stream = lists.map(of_row, name=self._name("row of a list"))
            return
        if (
            self.timer_rng is not None
            and self.timer_rng.random() < 0.5
            and branch.elements < OUTPUTS_MAX
        ):
            if self.timer_rng.random() < 0.5:
                self._add_windows(keyed, branch, self.timer_rng)
                return
            timed = self.timer_rng.choice(TIMED)
            drawn = timed.make(self.timer_rng)
            assert drawn.on_timer is not None
            branch.stream = keyed.process(
                drawn.function, *drawn.states, on_timer=drawn.on_timer, name=self._name(drawn.name)
            )
            branch.elements *= timed.outputs
            return
        if not self.any_order and branch.elements < OUTPUTS_MAX and rng.random() < 0.4:
            number = rng.randrange(len(PROCESSES) + len(_WITHOUT_FUNCTION))
            if number >= len(PROCESSES):
                kind = _WITHOUT_FUNCTION[number - len(PROCESSES)]
                branch.stream = getattr(keyed, kind)(name=self._name(kind))
                return
            process = PROCESSES[number]
            drawn_process = process.make(rng)
            states = self._expiring(drawn_process.states)
            name = self._name(drawn_process.name)
            branch.stream = keyed.process(drawn_process.function, *states, name=name)
            branch.elements *= process.outputs
        else:
            scan = rng.choice([s for s in SCANS if not (self.any_order and s.fails)])
            drawn_scan = scan.make(rng)
            states, name = self._expiring(drawn_scan.states), self._name(drawn_scan.name)
            branch.stream = keyed.scan(drawn_scan.function, *states, name=name)

    def _expiring(self, states: tuple[State, ...]) -> list[State]:
        """Return copies of declared states; in a flow with event times, some get a ttl."""
        rng = Random(f"ttl in {self.flow.name} {len(self.flow.vertices)}")
        declared = [state.for_key(None, []) for state in states]
        for state in declared:
            if self.timer_rng is not None and rng.random() < 0.5:
                ttl = timedelta(microseconds=rng.choice((3, 10, 60)))
                assert isinstance(state, ValueState | ListState | MapState)
                state.name = ValueState[object](state.name, ttl=ttl).name  # which holds the ttl
        return declared

    def _add_windows(
        self, keyed: KeyedStream[object, Element], branch: _Branch, rng: Random
    ) -> None:
        """Add windows with aggregates, and sometimes their late elements."""
        lateness = timedelta(microseconds=rng.choice((0, 0, 30)))
        chosen = rng.sample(sorted(AGGREGATES), rng.choice((1, 3)))
        aggregates = {name: AGGREGATES[name] for name in chosen}
        windows = keyed.window(rng.choice(WINDOWS), lateness=lateness)
        emit = rng.choice(("final", "final", "updates"))
        rows = windows.aggregate(
            emit=emit, name=self._name(f"windows with {', '.join(chosen)}"), **aggregates
        ).map(of_row, name=self._name("row"))
        if rng.random() < 0.5:
            late = windows.late.map(of_row, name=self._name("late"))
            rows = rows.union(late, name=self._name("with late elements"))
        branch.stream = rows
        branch.elements *= 3 if emit == "updates" else 1

    def _add_steps(self, branch: _Branch, *, free: bool) -> None:
        """Add some stateless steps. `free`: they may drop and multiply elements, and fail."""
        rng = self.rng
        for _ in range(rng.choice((0, 0, 1, 2))):
            kind = rng.choice(("map", "map", "filter", "flat_map")) if free else "map"
            if kind == "filter":
                test = rng.choice(PREDICATES)
                branch.stream = branch.stream.filter(test.function, name=self._name(test.name))
            elif kind == "flat_map" and branch.elements < OUTPUTS_MAX:
                split = rng.choice(FLAT_MAPS)
                branch.stream = branch.stream.flat_map(split.function, name=self._name(split.name))
                branch.elements *= 2
            else:
                self._map(branch, may_fail=free)

    def _map(self, branch: _Branch, *, may_fail: bool = False) -> None:
        step = self.rng.choice([step for step in MAPS if may_fail or not step.fails])
        branch.stream = branch.stream.map(step.function, name=self._name(step.name))

    def _name(self, description: str) -> str:
        self.steps += 1
        return f"{self.steps}: {description}"


def _element(record: dict[str, object]) -> Element:
    return str(record["key"]), int(str(record["id"]))


def _words(record: dict[str, object]) -> Iterator[Element]:
    for word in str(record["text"]).split()[:6]:
        yield word, int(str(record["id"]))
