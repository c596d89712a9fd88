"""The windows of a keyed stream: which operator takes them, and what its rows contain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from driftline.engine.errors import FlowError
from driftline.engine.operators.aggregates import Aggregate, Collect, Reduce
from driftline.engine.operators.hopping import HoppingLate, HoppingWindowed
from driftline.engine.operators.windowed import RESERVED, Late, Windowed
from driftline.engine.operators.windows import Hopping, Windows

if TYPE_CHECKING:
    from driftline.engine.flow.streams import KeyedStream, Stream

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WindowedStream(Generic[K, T]):
    """Stream of T, partitioned by keys K and by windows of event time."""

    keyed: KeyedStream[K, T]
    windows: Windows
    lateness: int

    def aggregate(
        self, *, emit: str = "final", name: str | None = None, **aggregates: Aggregate
    ) -> Stream[dict[str, Any]]:
        """Aggregate the elements of each window.

        Args:
            emit: "final": one row for each window, once the watermark has passed its end and
                `lateness`; "updates": also a row for each element, which shows the window so far.
                Rows then have a field `preliminary`.
            name: Name of the operator, in graphs and errors; by default its kind and a number.
            aggregates: Name in the rows -> ``Count()``, ``Sum("price")``, ...

        Returns:
            A stream of dicts: key, start and end of the window as ISO 8601 text, and the results.

        Raises:
            FlowError: There is no aggregate, one has the name of another field of the rows, or
                `emit` is neither of these; the name is taken.
        """
        if emit not in ("final", "updates"):
            raise FlowError(f"emit is {emit!r}, but must be 'final' or 'updates'")
        if not aggregates:
            raise FlowError("aggregate() needs aggregates, as in aggregate(count=Count())")
        for of_row, each in aggregates.items():
            if not isinstance(each, Aggregate):
                raise FlowError(f"aggregate({of_row}={each!r}): give an aggregate, such as Count()")
            if of_row in RESERVED:
                raise FlowError(f"aggregate({of_row}=...): rows have their own {of_row!r}")
        given, windows = tuple(aggregates.items()), self.windows
        if isinstance(windows, Hopping) and windows.overlap and emit == "final":
            return self._add(HoppingWindowed(windows, self.lateness, given), name)
        return self._add(Windowed(windows, self.lateness, given, emit == "updates"), name)

    def reduce(
        self, function: Callable[[T, T], T], *, name: str | None = None
    ) -> Stream[dict[str, Any]]:
        """Combine the elements of each window; rows have key, start, end and `value`.

        Args:
            function: Takes two elements, and returns an element.
            name: Name of the operator, in graphs and errors; by default its kind and a number.

        Raises:
            FlowError: `function` is not a function, or the name is taken.
        """
        if not callable(function):
            raise FlowError(f"reduce({function!r}): give a function of two elements")
        return self.aggregate(name=name, value=Reduce(function))

    def collect(self, *, name: str | None = None) -> Stream[dict[str, Any]]:
        """Collect the elements of each window; rows have key, start, end and `values`.

        Raises:
            FlowError: The name is taken.
        """
        return self.aggregate(name=name, values=Collect())

    @property
    def late(self) -> Stream[dict[str, Any]]:
        """The elements that are too late for their windows: dicts with `record`, `event_time`,
        `watermark` and the `windows` that it missed. Without it, a metric counts them."""
        windows = self.windows
        if isinstance(windows, Hopping) and windows.overlap:
            return self._add(HoppingLate(windows, self.lateness), None)
        return self._add(Late(windows, self.lateness), None)

    def _add(self, operator: Windowed, name: str | None) -> Stream[dict[str, Any]]:
        return self.keyed._add_keyed(
            operator, name, None, operator.apply, operator.states, operator.fire
        )
