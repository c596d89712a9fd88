"""Aggregates of a window: `Count`, `Sum`, `Min`, ..., and the base of a user's own.

A window keeps one accumulator for each aggregate: a value that can be encoded. Methods must not
change an accumulator in place. If windows merge, the operator merges their accumulators. The
accumulator of a hopping window is merged from those of its panes (`engine.operators.hopping`).

    >>> mean = Mean("price")
    >>> accumulator = mean.zero()
    >>> for record in {"price": 2}, {"price": 4}:
    ...     accumulator = mean.add(accumulator, record)
    >>> mean.result(accumulator)
    3.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from itertools import repeat
from math import fsum, inf, isfinite, isinf, isnan, nan
from operator import call, itemgetter
from sys import float_info
from typing import Any, cast

from driftline.engine.errors import FlowError
from driftline.engine.state.values import freeze, thaw
from driftline.engine.wire.codec import canonical_bytes

Field = str | int | Callable[[Any], Any]
"""Name or position of a value in an element, or a function that takes the element."""


class Aggregate:
    """Base of aggregates. A subclass implements `zero`, `add`, `merge`, and often `result`."""

    def zero(self) -> Any:
        """Return the accumulator of an empty window."""
        raise NotImplementedError

    def add(self, accumulator: Any, element: Any) -> Any:
        """Return the accumulator with an element. Elements are added in label order."""
        raise NotImplementedError

    def merge(self, one: Any, other: Any) -> Any:
        """Return the accumulator of two windows that have become one, or of two panes."""
        raise NotImplementedError

    def result(self, accumulator: Any) -> Any:
        """Return the value in the window's row."""
        return accumulator

    @property
    def accumulator_type(self) -> str:
        """Type of the accumulators, as text. Stored accumulators fit the same type only.

        Override it if accumulators depend on a parameter.
        """
        return type(self).__name__

    def add_at(self, accumulator: Any, element: Any, event_time: int) -> Any:
        """Return the accumulator with an element that has this event time.

        Windows call this method. Override it instead of `add` if the event time matters.
        """
        return self.add(accumulator, element)


Accumulators = tuple[Any, ...]
"""The accumulators of a window, one for each aggregate."""


class Aggregates:
    """The named aggregates of a windowed operator."""

    def __init__(self, named: Mapping[str, Aggregate]) -> None:
        self._names = tuple(named)
        self._aggregates = tuple(named.values())
        self._adds = [aggregate.add_at for aggregate in self._aggregates]

    def zeros(self) -> Accumulators:
        """Return the accumulators of an empty window."""
        return tuple([aggregate.zero() for aggregate in self._aggregates])

    def add(self, accumulators: Accumulators, element: object, event_time: int) -> Accumulators:
        """Return the accumulators with an element."""
        return tuple(map(call, self._adds, accumulators, repeat(element), repeat(event_time)))

    def merge(self, parts: Sequence[Accumulators]) -> Accumulators:
        """Return the merged accumulators of the parts of a window, given in order."""
        columns = zip(self._aggregates, zip(*parts, strict=True), strict=True)
        return tuple([reduce(aggregate.merge, column) for aggregate, column in columns])

    def results(self, accumulators: Accumulators) -> Iterator[tuple[str, Any]]:
        """Yield the names and results of the aggregates, for the window's row."""
        columns = zip(self._names, self._aggregates, accumulators, strict=True)
        return ((name, aggregate.result(accumulator)) for name, aggregate, accumulator in columns)

    def of_elements(
        self, elements: Iterable[tuple[int, object]], before: Accumulators | None = None
    ) -> Accumulators:
        """Return the accumulators of a window with these (event time, element) pairs.

        `before`: the accumulators of earlier elements. For the reference interpreter. After each
        element, accumulators have the types with which a state returns them.
        """
        accumulators = self.zeros() if before is None else before
        for event_time, element in elements:
            added = self.add(accumulators, element, event_time)
            accumulators = cast(Accumulators, thaw(freeze(added)))
        return accumulators

    def parameters(self) -> object:
        """Return what distinguishes the aggregates from others."""
        pairs = zip(self._names, self._aggregates, strict=True)
        return [(name, type(each), vars(each)) for name, each in pairs]

    def __str__(self) -> str:
        pairs = zip(self._names, self._aggregates, strict=True)
        return ", ".join(f"{name}={each.accumulator_type}" for name, each in pairs)


class FieldAggregate(Aggregate):
    """Base of aggregates of one value of each element."""

    def __init__(self, field: Field | None = None) -> None:
        """`field`: the value of an element to aggregate; None: the element itself."""
        self.field = field
        if field is None:
            self.get: Callable[[Any], Any] = _itself
        elif isinstance(field, str | int) and not isinstance(field, bool):
            self.get = itemgetter(field)
        elif callable(field):
            self.get = field
        else:
            raise FlowError(
                f"{type(self).__name__}({field!r}): give a field's name, a position or a function"
            )


def _itself(element: Any) -> Any:
    return element


def check_order(value: Any, what: str) -> None:
    """Raise ValueError if a value is or contains NaN, which has no place in an order.

    `what`: the aggregate or operator that compares values.
    """
    if isinstance(value, tuple | list):
        for item in value:
            check_order(item, what)
    elif isinstance(value, float) and isnan(value):
        raise ValueError(f"{what} of nan, which is neither smaller nor larger than other values")


class Count(Aggregate):
    """Number of elements."""

    def zero(self) -> int:
        return 0

    def add(self, accumulator: int, element: Any) -> int:
        return accumulator + 1

    def merge(self, one: int, other: int) -> int:
        return one + other


Partials = tuple[int, tuple[float, ...]]
"""Exact sum: (sum of the ints, floats whose exact sum is the sum of the float values)."""


class Sum(FieldAggregate):
    """Sum of a field. Floats are rounded only at the end, so their order does not matter."""

    def zero(self) -> Partials:
        return 0, ()

    def add(self, accumulator: Partials, element: Any) -> Partials:
        value = self.get(element)
        if isinstance(value, int):
            return _in_64_bits(accumulator[0] + value), accumulator[1]
        if isinstance(value, float):
            return accumulator[0], _add_exactly(accumulator[1], value)
        raise TypeError(f"{type(self).__name__} of {value!r:.100}, which is not a number")

    def merge(self, one: Partials, other: Partials) -> Partials:
        floats = one[1]
        for value in other[1]:
            floats = _add_exactly(floats, value)
        return _in_64_bits(one[0] + other[0]), floats

    def result(self, accumulator: Partials) -> Any:
        total, floats = accumulator
        if not floats:
            return total
        high = float(total)  # rounded, if the total has more than 53 bits
        try:
            return fsum((high, total - int(high), *floats))
        except ValueError:  # inf and -inf
            return nan
        except OverflowError:  # of an intermediate sum, or of the result
            exact = sum(map(Fraction, floats), Fraction(total))
            return float(exact) if abs(exact) <= float_info.max else inf if exact > 0 else -inf


class Mean(Sum):
    """Mean of a field, as a float."""

    def zero(self) -> Any:
        return 0, super().zero()

    def add(self, accumulator: Any, element: Any) -> Any:
        return accumulator[0] + 1, super().add(accumulator[1], element)

    def merge(self, one: Any, other: Any) -> Any:
        return one[0] + other[0], super().merge(one[1], other[1])

    def result(self, accumulator: Any) -> Any:
        count, (total, floats) = accumulator
        mean = super().result((total, floats)) / count
        if isinf(mean) and all(map(isfinite, floats)):  # only the sum is out of range
            return float(sum(map(Fraction, floats), Fraction(total)) / count)
        return mean


def _in_64_bits(total: int) -> int:
    if not -(2**63) <= total < 2**64:
        raise OverflowError("the sum of the integers has more than 64 bits")
    return total


def _add_exactly(floats: tuple[float, ...], value: float) -> tuple[float, ...]:
    """Add a float to a sum without rounding (Shewchuk, Adaptive precision arithmetic, 1997)."""
    if infinite := [each for each in (*floats, value) if not isfinite(each)]:
        return (sum(infinite),)
    exact = []
    for other in floats:
        larger, smaller = (value, other) if abs(value) >= abs(other) else (other, value)
        if isinf(larger + smaller):
            exact.append(other)
            continue
        value = larger + smaller
        if rest := smaller - (value - larger):
            exact.append(rest)
    return (*exact, value)


class _Extreme(FieldAggregate):
    """Base of `Min` and `Max`. Accumulator: (extreme value,), or () without elements."""

    def zero(self) -> Any:
        return ()

    def add(self, accumulator: Any, element: Any) -> Any:
        value = self.get(element)
        check_order(value, type(self).__name__)
        return self.merge(accumulator, (value,))

    def result(self, accumulator: Any) -> Any:
        return accumulator[0]


class Min(_Extreme):
    """Smallest value of a field."""

    def merge(self, one: Any, other: Any) -> Any:
        return one if not other or (one and one[0] <= other[0]) else other


class Max(_Extreme):
    """Largest value of a field."""

    def merge(self, one: Any, other: Any) -> Any:
        return one if not other or (one and one[0] >= other[0]) else other


class _ByTime(FieldAggregate):
    """Base of `First` and `Last`. Accumulator: (event time, value), or () without elements."""

    def zero(self) -> Any:
        return ()

    def add_at(self, accumulator: Any, element: Any, event_time: int) -> Any:
        return self.merge(accumulator, (event_time, self.get(element)))

    def result(self, accumulator: Any) -> Any:
        return accumulator[1]


class First(_ByTime):
    """Value of a field in the element with the smallest event time; among equals, the first."""

    def merge(self, one: Any, other: Any) -> Any:
        return one if not other or (one and one[0] <= other[0]) else other


class Last(_ByTime):
    """Value of a field in the element with the largest event time; among equals, the last."""

    def merge(self, one: Any, other: Any) -> Any:
        return one if not other or (one and one[0] > other[0]) else other


class CountDistinct(FieldAggregate):
    """Number of different values of a field; 1, 1.0 and True are different."""

    def zero(self) -> Any:
        return ()

    def add(self, accumulator: Any, element: Any) -> Any:
        value = canonical_bytes(self.get(element))
        return accumulator if value in accumulator else (*accumulator, value)

    def merge(self, one: Any, other: Any) -> Any:
        return (*one, *(value for value in other if value not in one))

    def result(self, accumulator: Any) -> Any:
        return len(accumulator)


class Collect(FieldAggregate):
    """List of the values of a field, in label order.

    If windows merge, their lists are joined in the order of the windows. The list of a hopping
    window joins those of its panes, so label order holds only within a pane.
    """

    def zero(self) -> Any:
        return ()

    def add(self, accumulator: Any, element: Any) -> Any:
        return (*accumulator, self.get(element))

    def merge(self, one: Any, other: Any) -> Any:
        return (*one, *other)


class Top(FieldAggregate):
    """The elements with the largest values of a field, largest first.

    Elements with equal values are in the order of `Collect`.

    Args:
        number: How many elements.
        by: Field to compare.
    """

    def __init__(self, number: int, by: Field) -> None:
        if type(number) is not int or number < 1:
            raise FlowError(f"Top({number!r}): give the number of elements, at least 1")
        super().__init__(by)
        self.number = number

    def zero(self) -> Any:
        return ()

    def add(self, accumulator: Any, element: Any) -> Any:
        check_order(self.get(element), "Top")
        return self.merge(accumulator, (element,))

    def merge(self, one: Any, other: Any) -> Any:
        best = sorted((*one, *other), key=self.get, reverse=True)  # stable
        return tuple(best[: self.number])


class Reduce(FieldAggregate):
    """Aggregate of ``windows.reduce(function)``."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.function = function

    def zero(self) -> Any:
        return ()

    def add(self, accumulator: Any, element: Any) -> Any:
        return self.merge(accumulator, (element,))

    def merge(self, one: Any, other: Any) -> Any:
        return (self.function(one[0], other[0]),) if one and other else one or other

    def result(self, accumulator: Any) -> Any:
        return accumulator[0]
