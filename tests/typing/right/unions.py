"""Unions of streams of one type, and of several types, distinguished by a tag."""

from collections.abc import Iterator
from typing import Literal, TypedDict, assert_type

from driftline import Context, Flow, Stream, ValueState


class Click(TypedDict):
    kind: Literal["click"]
    user: str
    x: int


class Key(TypedDict):
    kind: Literal["key"]
    user: str
    pressed: str


class Tick(TypedDict):
    kind: Literal["tick"]
    user: str


def show(context: Context, event: Click | Key, before: ValueState[str]) -> Iterator[str]:
    if event["kind"] == "click":
        assert_type(event["x"], int)
        yield before.get("none")
    else:
        before.set(event["pressed"])


def user(event: Click | Key | Tick) -> str:
    return event["user"]


flow = Flow("unions")
clicks = flow.source("clicks", of=Click)
keys = flow.source("keys", of=Key)
ticks = flow.source("ticks", of=Tick)

assert_type(clicks.union(clicks), Stream[Click])
both = clicks.union(keys)
assert_type(both, Stream[Click | Key])
assert_type(flow.union(clicks, keys), Stream[Click | Key])
both.key_by("user").process(show, ValueState("pressed")).sink("shown")

every = both.union(ticks)
assert_type(every, Stream[Click | Key | Tick])
every.map(user).sink("users")

# A stream of some of the types is accepted as one of all of them.
wider: Stream[Click | Key | Tick] = clicks
wider.map(user).sink("users-with-clicks")
