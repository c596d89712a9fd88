"""Outline of a flow: the properties that must not change if a run reuses its state.

Outlines are compared by the names of their operators, so the error of a rejected run lists what is
new, removed or different. An outline does not contain code (see `engine.flow.code`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from driftline.engine.flow.flow import Flow


class OperatorOutline(Struct, frozen=True, array_like=True):
    """Operator; `inputs`: the names of the operators before it; `states`: (type, name)."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    states: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{'source' if self.kind == 'source' else 'operator'} {self.name!r}"


class Outline(Struct, frozen=True, array_like=True):
    """Name of a flow, its number of key groups, and its operators in order."""

    flow: str
    groups: int
    operators: tuple[OperatorOutline, ...]

    @property
    def sources(self) -> list[str]:
        """Names of the sources, in order."""
        return [each.name for each in self.operators if each.kind == "source"]

    def differences(self, before: Outline) -> list[str]:
        """Return a sentence for each difference from the outline `before`."""
        found = []
        if self.flow != before.flow:
            found.append(f"the flow is named {self.flow!r} instead of {before.flow!r}")
        if self.groups != before.groups:
            found.append(f"the flow has {self.groups} key groups instead of {before.groups}")
        mine = {each.name: each for each in self.operators}
        theirs = {each.name: each for each in before.operators}
        found += [f"{one} ({one.kind}) is gone" for one in before.operators if one.name not in mine]
        found += [f"{one} ({one.kind}) is new" for one in self.operators if one.name not in theirs]
        for name, each in mine.items():
            if name in theirs:
                found += _differences(theirs[name], each)
        if not found and [*mine] != [*theirs]:
            found.append(f"the operators stand in another order: {_quoted(mine)}")
        return found


def make_outline(flow: Flow) -> Outline:
    """Return the outline of a flow."""
    names = [vertex.name for vertex in flow.vertices]
    operators = tuple(
        OperatorOutline(
            vertex.name,
            vertex.kind,
            tuple(names[number] for number in vertex.inputs),
            tuple((type(state).__name__, str(state.name)) for state in vertex.states),
        )
        for vertex in flow.vertices
    )
    return Outline(flow.name, flow.groups, operators)


def _differences(before: OperatorOutline, now: OperatorOutline) -> list[str]:
    """Compare two operators of the same name."""
    found = []
    if before.kind != now.kind:
        found.append(f"{now} is a {now.kind} instead of a {before.kind}")
    found += [f"{now} {text}" for text in _states(before.states, now.states)]
    if before.inputs != now.inputs:
        inputs = f"{_quoted(now.inputs)} instead of {_quoted(before.inputs)}"
        found.append(f"{now} takes its input from {inputs}")
    return found


def has_default_name(operator: OperatorOutline) -> bool:
    """Return whether the name is the default: the kind and a number.

    That number depends on the operators before this one.
    """
    kind, _, number = operator.name.rpartition("-")
    return kind == operator.kind and number.isdecimal()


def _states(before: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> list[str]:
    """Compare the states of an operator."""
    of_before, of_now = ({name: kind for kind, name in states} for states in (before, now))
    found = [f"lacks its state {name!r} ({kind})" for kind, name in before if name not in of_now]
    for kind, name in now:
        if name not in of_before:
            found.append(f"has a new state {name!r} ({kind})")
        elif of_before[name] != kind:
            found.append(f"has a {kind} {name!r} instead of a {of_before[name]}")
    if not found and [*of_before] != [*of_now]:
        found.append(f"has its states in another order: {_quoted(of_now)}")
    return found


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"
