"""Random small flows: operators that fit in any order, over elements (key, text, number)."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import strategies as st

from driftline.engine.flow.flow import Flow
from driftline.engine.flow.streams import Stream
from driftline.engine.operators.context import Context
from driftline.engine.state.managed import ListState, MapState, ReducingState, ValueState

Element = tuple[str, str, int]


@dataclass(frozen=True)
class SmallFlow:
    """Small flow: the steps after its source, and the records of one or two sources."""

    steps: tuple[str, ...]
    records: tuple[Element, ...]
    others: tuple[Element, ...]


def _upper(element: Element) -> Element:
    return element[0], element[1].upper(), element[2]


def _words(element: Element) -> list[Element]:
    return [(word, word, element[2] + i) for i, word in enumerate(element[1].split())]


def _is_long(element: Element) -> bool:
    return len(element[1]) > 3


def _count(element: Element, total: ReducingState[int]) -> Element:
    return element[0], element[1], total.add(1)


def _concatenate(element: Element, before: ValueState[str]) -> Element:
    joined = f"{before.get('')} {element[1]}"[-20:]
    before.set(joined)
    return element[0], joined, element[2]


def _gather(
    context: Context, element: Element, seen: ListState[str], last: MapState[str, int]
) -> Iterator[Element]:
    seen.append(element[1])
    last[element[0]] = element[2]
    if len(seen) > 2:
        yield element[0], " ".join(seen), len(last)
        seen.clear()
    yield element[0], element[1], context.random.randrange(100)


def _fail(element: Element, seen: ReducingState[int]) -> Element:
    if seen.add(1) % 3 == 0:
        raise ValueError(f"number {element[2]}")
    return element


def build(smalls: list[SmallFlow]) -> Flow:
    """Build one flow of several small ones, each with its own sources and sinks."""
    flow = Flow("small ones", groups=16)
    for number, small in enumerate(smalls):
        stream: Stream[Element] = flow.source(f"records-{number}").map(_element)
        for place, step in enumerate(small.steps):
            name = f"{step}-{number}-{place}"
            if step == "upper":
                stream = stream.map(_upper, name=name)
            elif step == "words":
                stream = stream.flat_map(_words, name=name)
            elif step == "long":
                stream = stream.filter(_is_long, name=name)
            elif step == "count":
                stream = stream.key_by(0).scan(
                    _count, ReducingState[int]("total", operator.add), name=name
                )
            elif step == "concatenate":
                stream = stream.key_by(0).scan(_concatenate, ValueState[str]("text"), name=name)
            elif step == "gather":
                by_number = stream.key_by(lambda element: element[2] % 3)
                states = ListState[str]("seen"), MapState[str, int]("last")
                stream = by_number.process(_gather, *states, name=name)
            elif step == "fail":
                stream = stream.key_by(1).scan(
                    _fail, ReducingState[int]("seen", operator.add), name=name
                )
            elif step == "distinct":
                stream = stream.key_by(1).distinct(name=name)
            elif step == "fork":
                stream.filter(_is_long).sink(name)
            elif step == "itself":
                stream = stream.union(stream.map(_upper), name=name)
            else:
                other = flow.source(f"others-{number}-{place}").map(_element)
                stream = stream.union(other, name=name)
        stream.sink(f"end-{number}")
    return flow.validate()


def inputs(smalls: list[SmallFlow]) -> list[list[object]]:
    """Return the records of each source of the flow that `build` returns."""
    found: list[list[object]] = []
    for small in smalls:
        found.append(list(small.records))
        found += [list(small.others) for step in small.steps if step == "join"]
    return found


def _element(record: Element) -> Element:
    return record[0], record[1], record[2]


_STEPS = (
    *("upper", "words", "long", "count", "concatenate", "gather", "fail", "distinct"),
    *("fork", "itself"),
)
_elements = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "мир"]),
        st.lists(st.sampled_from(["to", "be", "oder", "nicht"]), max_size=4).map(" ".join),
        st.integers(0, 9),
    ),
    max_size=8,
).map(tuple)


def smalls() -> st.SearchStrategy[SmallFlow]:
    """Draw small flows; at most one of their steps joins another source."""
    steps = st.tuples(
        st.lists(st.sampled_from(_STEPS), max_size=3),
        st.lists(st.just("join"), max_size=1),
        st.lists(st.sampled_from(_STEPS), max_size=2),
    ).map(lambda found: tuple(step for some in found for step in some))
    return st.builds(SmallFlow, steps, _elements, _elements)
