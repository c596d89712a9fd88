"""How much is at work at one time, and how often one client may ask."""

from __future__ import annotations

from time import monotonic
from types import TracebackType

from driftline.engine.events import Trouble
from driftline.serve.errors import Refused

CLIENTS_MAX = 10_000
"""Clients of which is known how often they have asked."""


class Places:
    """A number of places; `what` is in them. That they are all taken is told."""

    def __init__(self, most: int, what: str) -> None:
        self.taken = 0
        self._most = most
        self._what = what
        self._trouble = Trouble("places-taken")

    def take(self, count: int = 1) -> Taken:
        """Take places, within a context: who needs more than there are gets all. Raises Refused if
        they are taken."""
        if self.taken and self.taken + count > self._most:
            there = f"there are {self.taken} {self._what} already"
            self._trouble.failed(monotonic(), f"{there}: more are refused")
            raise Refused("busy", f"{there}: try again later")
        self.taken += count
        return Taken(self, count)

    def give_back(self, count: int) -> None:
        """Give places back."""
        self.taken -= count
        if self._trouble.count and self.taken <= self._most // 2:
            self._trouble.over(monotonic(), f"there is room for {self._what} again")


class Taken:
    """Places that are given back at the end of a context."""

    __slots__ = ("_count", "_places")

    def __init__(self, places: Places, count: int) -> None:
        self._places = places
        self._count = count

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._places.give_back(self._count)


class Rates:
    """How often each client asks. `per_s`: so often it may, on average; 0: as often as it likes."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._free: dict[str, float] = {}
        """When each client has used up nothing of what it may save; the earliest may be first."""

    def ask(self, client: str, now: float) -> None:
        """A client asks; `now`: seconds, monotonic. Raises Refused if it does so too often."""
        if not self._per_s:
            return
        free = max(self._free.pop(client, now), now)
        most = max(1.0, self._per_s) / self._per_s  # a second's, and at least one
        refused = free - now > most - 1 / self._per_s + 1e-9
        self._free[client] = free if refused else free + 1 / self._per_s
        if len(self._free) > CLIENTS_MAX:
            del self._free[next(iter(self._free))]
        if refused:
            text = f"more than {self._per_s:g} requests a second of one client: ask less often"
            raise Refused("busy", text)
