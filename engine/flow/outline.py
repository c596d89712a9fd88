"""Outline of a flow: the properties that must not change if a run reuses its state.

Outlines are compared by the names of their operators, so the error of a rejected run lists what is
new, removed or different. An outline does not contain code (see `engine.flow.code`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from driftline.engine.flow.flow import Flow
from driftline.engine.operators.operator import Vertex


class OperatorOutline(Struct, frozen=True, array_like=True):
    """Outline of an operator. `inputs`: names of its input operators; `states`: (type, name)."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    states: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{'source' if self.kind == 'source' else 'operator'} {self.name!r}"


class Outline(Struct, frozen=True, array_like=True):
    """Outline of a flow: its name, its number of key groups, and its operators in order."""

    flow: str
    groups: int
    operators: tuple[OperatorOutline, ...]

    @property
    def sources(self) -> list[str]:
        """Names of the sources, in order."""
        return [each.name for each in self.operators if each.kind == "source"]

    def differences(self, before: Outline) -> list[str]:
        """Return a text for each difference from the outline `before`."""
        texts = []
        if self.flow != before.flow:
            texts.append(f"the flow is named {self.flow!r} instead of {before.flow!r}")
        if self.groups != before.groups:
            texts.append(f"the flow has {self.groups} key groups instead of {before.groups}")
        new = {operator.name: operator for operator in self.operators}
        old = {operator.name: operator for operator in before.operators}
        texts += [f"{o} ({o.kind}) is gone" for o in before.operators if o.name not in new]
        texts += [f"{o} ({o.kind}) is new" for o in self.operators if o.name not in old]
        for name, operator in new.items():
            if name in old:
                texts += _differences(old[name], operator)
        if not texts and [*new] != [*old]:
            texts.append(f"the operators stand in another order: {_quoted(new)}")
        return texts


def make_outline(flow: Flow) -> Outline:
    """Return the outline of a flow."""
    names = [vertex.name for vertex in flow.vertices]
    operators = tuple(
        OperatorOutline(
            vertex.name,
            vertex.kind,
            tuple(names[number] for number in vertex.inputs),
            vertex.state_types,
        )
        for vertex in flow.vertices
    )
    return Outline(flow.name, flow.groups, operators)


def _differences(before: OperatorOutline, after: OperatorOutline) -> list[str]:
    """Return a text for each difference between two operators of the same name."""
    texts = []
    if before.kind != after.kind:
        texts.append(f"{after} is a {after.kind} instead of a {before.kind}")
    texts += [f"{after} {text}" for text in _state_differences(before.states, after.states)]
    if before.inputs != after.inputs:
        inputs = f"{_quoted(after.inputs)} instead of {_quoted(before.inputs)}"
        texts.append(f"{after} takes its input from {inputs}")
    return texts


def has_default_name(operator: OperatorOutline | Vertex) -> bool:
    """Return whether an operator has a default name: its kind and a number.

    The number changes if operators are added or removed before this one.
    """
    kind, _, number = operator.name.rpartition("-")
    return kind == operator.kind and number.isdecimal()


def _state_differences(
    before: Sequence[tuple[str, str]], after: Sequence[tuple[str, str]]
) -> list[str]:
    """Return a text for each difference between the states of an operator."""
    old, new = ({name: kind for kind, name in states} for states in (before, after))
    texts = [f"lacks its state {name!r} ({kind})" for kind, name in before if name not in new]
    for kind, name in after:
        if name not in old:
            texts.append(f"has a new state {name!r} ({kind})")
        elif old[name] != kind:
            texts.append(f"has a {kind} {name!r} instead of a {old[name]}")
    if not texts and [*old] != [*new]:
        texts.append(f"has its states in another order: {_quoted(new)}")
    return texts


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"
