"""Keyed operators whose outputs depend on the order of their elements, and steps that run them."""

from collections.abc import Callable, Iterator

from driftline.engine.flow.flow import Flow
from driftline.engine.labels import Label
from driftline.engine.operators.context import Context
from driftline.engine.operators.keyed import Keyed
from driftline.engine.state.managed import ListState, MapState, ReducingState, ValueState
from tests.engine.operators.steps import Collected

Payload = tuple[str, str]
"""(key, text)"""
Element = tuple[Label, Payload]


def join(element: Payload, texts: ValueState[str]) -> tuple[str, str]:
    joined = texts.get("") + element[1]
    texts.set(joined)
    return element[0], joined


def fail_on_awkward_lengths(element: Payload, texts: ValueState[str]) -> tuple[str, str]:
    """Changes its state before it raises, and raises in some orders only."""
    key, joined = join(element, texts)
    if len(joined) % 3 == 2:
        raise ValueError(f"{joined!r} is awkward")
    return key, joined


def gather(
    context: Context,
    element: Payload,
    seen: ListState[str],
    latest: MapState[str, int],
    texts: ReducingState[str],
) -> Iterator[object]:
    """Several outputs or none, three states, clears, removals, overwrites; sometimes it raises."""
    text = element[1]
    seen.append(text)
    latest[text] = len(seen)
    if len(seen) > 2:
        yield ("full", tuple(seen), tuple(latest.items()))
        seen.clear()
    if text == "x" and "y" in latest:
        del latest["y"]
        yield ("total", texts.add(text))
    if text == "z" and len(seen) > 1:
        seen[0] = seen.pop()
        latest.clear()
    if text == "raise" and len(latest) % 2:
        raise ValueError(f"after {tuple(seen)}")
    yield (context.key, text, context.random.randrange(100), len(seen))


def collect(element: Payload, texts: ListState[str]) -> tuple[str, ...]:
    """One state whose changes do not replace the whole; sometimes it is cleared."""
    texts.append(element[1])
    if len(texts) > 6:
        texts.clear()
    if len(texts) == 3 and element[1] == "raise":
        raise ValueError(f"after {tuple(texts)}")
    return element[0], *texts


def only_itself(element: Payload, texts: ValueState[str]) -> tuple[str, str]:
    """Its output depends on nothing but the element."""
    texts.set(texts.get("") + element[1])
    return element


def flow_of(kind: str) -> Flow:
    flow = Flow(kind)
    keyed = flow.source("in").key_by(0)
    if kind == "gather":
        states = ListState[str]("seen"), MapState[str, int]("latest")
        keyed.process(gather, *states, ReducingState[str]("texts", str.__add__), name="op").sink()
    elif kind == "distinct":
        keyed.distinct(name="op").sink()
    elif kind == "collect":
        keyed.scan(collect, ListState[str]("texts"), name="op").sink()
    else:
        functions: dict[str, Callable[..., object]] = {
            "join": join,
            "fail": fail_on_awkward_lengths,
            "only_itself": only_itself,
        }
        keyed.scan(functions[kind], ValueState[str]("texts"), name="op").sink()
    return flow


KINDS = ["join", "fail", "gather", "collect", "only_itself", "distinct"]


def make(order: type[Keyed], flow: Flow) -> tuple[Keyed, Collected]:
    collected = Collected()
    vertex = flow.vertices[1]
    return order(vertex, collected, collected.failures), collected
