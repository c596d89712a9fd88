"""The operations that the paper uses as examples, and their inputs."""

from __future__ import annotations

from collections.abc import Iterator

from driftline.engine.flow.flow import Flow
from driftline.engine.operators.context import Context
from driftline.engine.reference import interpret
from driftline.engine.state.managed import ValueState

Records = list[tuple[int, object]]

LEFT: Records = [(1, "a"), (5, "c")]
RIGHT: Records = [(3, "b")]
"""Two asynchronous input channels: "a" and "c" arrive on one, "b" on the other."""


def concatenation(arrived: list[str] | None = None) -> Flow:
    """An operation that concatenates input strings and delivers it after each item."""
    flow = Flow("concatenation")

    def key(text: str) -> int:
        if arrived is not None:
            arrived.append(text)
        return 0

    def join(text: str, joined: ValueState[str]) -> str:
        joined.set(joined.get("") + text)
        return joined.get("")

    both = flow.source("left").union(flow.source("right").map(str.lower, name="lower"))
    both.key_by(key).scan(join, ValueState("joined"), name="join").sink()
    return flow


def windows() -> Flow:
    """A windowed operation (window = 2) that concatenates strings (section III-B, figure 1)."""
    flow = Flow("windows")

    def pairs(context: Context, text: str, last: ValueState[str]) -> Iterator[str]:
        yield last.get("") + text
        last.set(text)

    both = flow.source("left").union(flow.source("right"))
    both.key_by(lambda _: 0).process(pairs, ValueState("last"), name="pairs").sink()
    return flow


def reference(flow: Flow, *inputs: Records) -> list[object]:
    return [item.value for item in interpret(flow, inputs)]
