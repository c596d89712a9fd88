"""The outline of a flow: what has to be the same for a run to go on with its state.

Two outlines are compared operator by operator, so that a refused run says what is new, what is
gone, and what is another one. Code is no part of an outline (see `engine.flow.code`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from driftline.engine.flow.flow import Flow


@dataclass(frozen=True, slots=True)
class OperatorOutline:
    """An operator; `inputs`: the names of the operators before it; `states`: (type, name)."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    states: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{'source' if self.kind == 'source' else 'operator'} {self.name!r}"


@dataclass(frozen=True, slots=True)
class Outline:
    """The name of a flow, its number of key groups, and its operators in their order."""

    flow: str
    groups: int
    operators: tuple[OperatorOutline, ...]

    @property
    def sources(self) -> list[str]:
        """The names of the sources, in their order."""
        return [each.name for each in self.operators if each.kind == "source"]

    def differences(self, before: Outline) -> list[str]:
        """What differs from the outline `before`: a sentence for each difference."""
        found = []
        if self.flow != before.flow:
            found.append(f"the flow is named {self.flow!r} instead of {before.flow!r}")
        if self.groups != before.groups:
            found.append(f"the flow has {self.groups} key groups instead of {before.groups}")
        return found + _Comparison(before.operators, self.operators).sentences()


def outline(flow: Flow) -> Outline:
    """The outline of a flow."""
    names = [vertex.name for vertex in flow.vertices]
    operators = tuple(
        OperatorOutline(
            vertex.name,
            vertex.kind,
            tuple(names[number] for number in vertex.inputs),
            tuple((type(state).__name__, state.name) for state in vertex.states),
        )
        for vertex in flow.vertices
    )
    return Outline(flow.name, flow.groups, operators)


class _Comparison:
    """Finds the operators that correspond to each other, and compares them."""

    def __init__(self, before: Sequence[OperatorOutline], now: Sequence[OperatorOutline]) -> None:
        self.pairs: list[tuple[OperatorOutline, OperatorOutline]] = []
        self.gone: list[OperatorOutline] = []
        self.new: list[OperatorOutline] = []
        self.moved: list[OperatorOutline] = []
        matcher = SequenceMatcher(None, _keys(before), _keys(now), autojunk=False)
        for tag, i, i_end, j, j_end in matcher.get_opcodes():
            if tag == "equal":
                self.pairs += zip(before[i:i_end], now[j:j_end], strict=True)
            else:
                self._unequal(list(before[i:i_end]), list(now[j:j_end]))
        for one in list(self.gone):
            for other in [other for other in self.new if other.name == one.name]:
                self._pair(one, other, self.gone, self.new)
                self.moved += [other] * (one.kind == other.kind)

    def _unequal(self, before: list[OperatorOutline], now: list[OperatorOutline]) -> None:
        for one in list(before):  # the same name first, then the same kind
            for other in [other for other in now if other.name == one.name]:
                self._pair(one, other, before, now)
        for one in list(before):
            for other in [other for other in now if other.kind == one.kind][:1]:
                self._pair(one, other, before, now)
        self.gone += before
        self.new += now

    def _pair(
        self,
        one: OperatorOutline,
        other: OperatorOutline,
        before: list[OperatorOutline],
        now: list[OperatorOutline],
    ) -> None:
        self.pairs.append((one, other))
        before.remove(one)
        now.remove(other)

    def sentences(self) -> list[str]:
        found = [f"{each} ({each.kind}) is gone" for each in self.gone]
        found += [f"{each} ({each.kind}) is new" for each in self.new]
        found += [f"{each} stands at another place in the flow" for each in self.moved]
        for one, other in self.pairs:
            found += self._of_pair(one, other)
        return found or self._other_numbers()

    def _of_pair(self, one: OperatorOutline, other: OperatorOutline) -> list[str]:
        found = []
        if one.name != other.name and not (unnamed(one) and unnamed(other)):
            found.append(f"{other} has another name: it was {one.name!r}")
        if one.kind != other.kind:
            found.append(f"{other} is a {other.kind} instead of a {one.kind}")
        found += [f"{other} {text}" for text in _states(one.states, other.states)]
        renamed = {a.name: b.name for a, b in self.pairs}
        inputs = tuple(renamed.get(name, name) for name in one.inputs)
        changed = {each.name for each in (*self.gone, *self.new, *self.moved)}
        if inputs != other.inputs and not changed.intersection((*inputs, *other.inputs)):
            found.append(
                f"{other} takes its input from {_quoted(other.inputs)} instead of {_quoted(inputs)}"
            )
        return found

    def _other_numbers(self) -> list[str]:
        return [
            f"{other} has another name: it was {one.name!r}"
            for one, other in self.pairs
            if one.name != other.name
        ]


def _keys(operators: Sequence[OperatorOutline]) -> list[tuple[str, str]]:
    return [(each.kind, "" if unnamed(each) else each.name) for each in operators]


def unnamed(operator: OperatorOutline) -> bool:
    """Whether the name is the kind and a number: operators before it change the number."""
    kind, _, number = operator.name.rpartition("-")
    return kind == operator.kind and number.isdecimal()


def _states(before: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> list[str]:
    """What an operator's states have become."""
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


def _quoted(names: Sequence[str] | dict[str, str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"
