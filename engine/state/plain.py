"""States of the reference interpreter, as simple as possible.

These classes behave like the states of `engine.state.managed`. The two implementations share only
the form of stored values (`engine.state.values`) and `PlainCopies`, so that tests can compare them.
Each state is a dict, a list or a single value, and adds a function to `Undo` for each change. The
classes use neither the undo log, nor the changelog, nor serialised states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import SupportsIndex

from driftline.engine.errors import FlowError, PayloadError
from driftline.engine.keygroups import exact_key, pack_key
from driftline.engine.state.managed import (
    ListState,
    MapState,
    PlainCopies,
    ReducingState,
    State,
    ValueState,
    show_as,
)
from driftline.engine.state.values import freeze, thaw
from driftline.engine.wire.codec import is_a, unpack


class Undo(list[Callable[[], object]]):
    """Functions that undo the changes of the current element: one for each change, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: list[tuple[object, object]] = []
        """(state, key of the changed item) of each change; the key is None except in a map."""

    def add(self, state: object, item: object, undo_change: Callable[[], object]) -> None:
        """Add a change of a state, and the function that undoes it.

        `item`: key of the changed item if the state is a map, else None.
        """
        self.append(undo_change)
        self.changed.append((state, item))

    def clear(self) -> None:
        super().clear()
        self.changed.clear()


_NONE = object()


class PlainValue(PlainCopies):
    """One value, or none."""

    __class__ = property(lambda self: ValueState)  # isinstance works as on nodes

    def __init__(self, undo: Undo) -> None:
        self._undo = undo
        self._value: object = _NONE

    def get(self, default: object = None) -> object:
        return default if self._value is _NONE else thaw(self._value)

    def set(self, value: object) -> None:
        self._put(freeze(value))

    def clear(self) -> None:
        self._put(_NONE)

    def _put(self, value: object) -> None:
        self._undo.add(self, None, partial(setattr, self, "_value", self._value))
        self._value = value


class PlainReducing(PlainValue):
    """One value, and a function that combines it with an added value."""

    __class__ = property(lambda self: ReducingState)  # isinstance works as on nodes

    def __init__(self, undo: Undo, reduce: Callable[..., object]) -> None:
        super().__init__(undo)
        self._reduce = reduce

    def add(self, value: object) -> object:
        new = value if self._value is _NONE else self._reduce(self.get(), value)
        self.set(new)
        return new


class PlainList(PlainCopies):
    """A list of values."""

    __class__ = property(lambda self: ListState)  # isinstance works as on nodes

    def __init__(self, undo: Undo) -> None:
        self._undo = undo
        self._values: list[object] = []

    def append(self, value: object) -> None:
        self._values.append(freeze(value))
        self._undo.add(self, None, self._values.pop)

    def extend(self, values: Iterable[object]) -> None:
        for value in values:
            self.append(value)

    def pop(self, index: SupportsIndex = -1) -> object:
        new = self._values[:]
        value = new.pop(index)
        self._replace(new)
        return thaw(value)

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        new = self._values[:]
        del new[index]
        self._replace(new)

    def clear(self) -> None:
        self._replace([])

    def _replace(self, new: list[object]) -> None:
        if len(new) < len(self._values):
            self._undo.add(self, None, partial(setattr, self, "_values", self._values))
            self._values = new

    def __getitem__(self, index: SupportsIndex | slice) -> object:
        selected = self._values[index]
        return list(map(thaw, selected)) if isinstance(selected, list) else thaw(selected)

    def __setitem__(self, index: SupportsIndex | slice, value: object) -> None:
        if isinstance(index, slice):
            raise TypeError("a slice of a ListState cannot be set: set its items one by one")
        new, old = freeze(value), self._values[index]
        self._values[index] = new
        self._undo.add(self, None, partial(self._values.__setitem__, index, old))

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[object]:
        return map(thaw, list(self._values))

    def copy(self) -> list[object]:
        return list(self)


class PlainMap(PlainCopies, dict[object, object]):
    """Map, stored as a dict from packed key to frozen value.

    Iteration yields keys in the order of their encoding.
    """

    __class__ = property(lambda self: MapState)  # isinstance works as on nodes

    def __init__(self, undo: Undo) -> None:
        super().__init__()
        self._undo = undo

    def __getitem__(self, key: object) -> object:
        return thaw(self._stored_value(key))

    def _stored_value(self, key: object) -> object:
        packed = self._packed(key)
        if packed is None:
            raise KeyError(key)
        return super().__getitem__(packed)

    def _packed(self, key: object) -> bytes | None:
        """Return the packed form of a key; None if the key is not in the map."""
        exact_key(key)  # raises if the value cannot be a key
        try:
            packed = pack_key(key)
        except PayloadError:  # for example an int of more than 64 bits, which no map can contain
            return None
        return packed if super().__contains__(packed) else None

    def __contains__(self, key: object) -> bool:
        return self._packed(key) is not None

    def __setitem__(self, key: object, value: object) -> None:
        packed, new = pack_key(key), freeze(value)
        if super().__contains__(packed):
            undo_change = partial(super().__setitem__, packed, super().__getitem__(packed))
        else:
            undo_change = partial(super().__delitem__, packed)
        self._undo.add(self, key, undo_change)
        super().__setitem__(packed, new)

    def __delitem__(self, key: object) -> None:
        old, packed = self._stored_value(key), pack_key(key)
        self._undo.add(self, key, partial(super().__setitem__, packed, old))
        super().__delitem__(packed)

    def __iter__(self) -> Iterator[object]:
        return map(unpack, self._sorted_packed_keys())

    def _sorted_packed_keys(self) -> list[bytes]:
        return sorted(packed for packed in super().__iter__() if is_a(packed, bytes))

    def __reversed__(self) -> Iterator[object]:
        return reversed(list(self))

    def __eq__(self, other: object) -> bool:
        return self.copy() == other

    def __ne__(self, other: object) -> bool:
        return self.copy() != other

    __hash__ = None

    def __repr__(self) -> str:
        items = ", ".join(f"{key!r}: {value!r}" for key, value in self.items())
        return f"MapState({{{items}}})"

    def keys(self) -> list[object]:  # type: ignore[override]
        return list(self)

    def values(self) -> list[object]:  # type: ignore[override]
        return [value for _, value in self.items()]

    def items(self) -> list[tuple[object, object]]:  # type: ignore[override]
        get = super().__getitem__
        return [(unpack(packed), thaw(get(packed))) for packed in self._sorted_packed_keys()]

    def get(self, key: object, default: object = None) -> object:
        return self[key] if key in self else default  # noqa: SIM401  # `get` itself

    def clear(self) -> None:
        for key in self:
            del self[key]

    def pop(self, key: object, *default: object) -> object:
        if default and key not in self:
            (value,) = default
            return value
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[object, object]:
        if not self:
            raise KeyError("popitem of an empty map")
        key = list(self)[-1]
        return key, self.pop(key)

    def setdefault(self, key: object, default: object, /) -> object:  # type: ignore[override]
        if key not in self:
            self[key] = default
        return self[key]

    def update(  # type: ignore[override]
        self,
        other: Mapping[object, object] | Iterable[tuple[object, object]] = (),
        /,
        **named: object,
    ) -> None:
        for key, value in other.items() if isinstance(other, Mapping) else other:
            self[key] = value
        for name, value in named.items():
            self[name] = value

    def __ior__(self, other: Mapping[object, object]) -> PlainMap:  # type: ignore[override, misc]
        self.update(other)
        return self

    def copy(self) -> dict[object, object]:
        return dict(self.items())


def is_stored(state: object, item: object) -> bool:
    """Return whether a state has a value; for a map, whether it has the key `item`."""
    if isinstance(state, PlainMap):
        return item in state
    if isinstance(state, PlainList):
        return len(state) > 0
    assert isinstance(state, PlainValue)
    return state.get(_NONE) is not _NONE


for _class, _declared in (
    (PlainValue, ValueState),
    (PlainReducing, ReducingState),
    (PlainList, ListState),
    (PlainMap, MapState),
):
    show_as(_class, _declared)


def plain_state(declared: State, undo: Undo) -> object:
    """Return an empty state of the declared type. Raises FlowError for an unknown type."""
    if isinstance(declared, ReducingState):
        return PlainReducing(undo, declared.reduce)
    if isinstance(declared, ValueState):
        return PlainValue(undo)
    if isinstance(declared, ListState):
        return PlainList(undo)
    if isinstance(declared, MapState):
        return PlainMap(undo)
    raise FlowError(f"the reference interpreter has no {type(declared).__name__}")
