"""The story of a run: its log events, also those of its processes, with the time of each.

All processes of a machine have one clock for people, to which log lines are exact to a microsecond;
here it is turned into that of `perf_counter`, which meters use.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from datetime import datetime
from time import perf_counter, time
from types import TracebackType
from typing import NamedTuple, Self

from driftline.engine.events import FIELDS, log


class Event(NamedTuple):
    """A log event, by its name, and when it was told, in seconds of `perf_counter`."""

    name: str
    at: float


class Story(logging.Handler):
    """Takes all lines of Driftline, in place of those who print them. A context manager."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        """In the order in which this process has heard of them."""
        self._others: list[Event] = []
        self._ahead_s = time() - perf_counter()
        self._before = log.level, log.propagate

    def __enter__(self) -> Self:
        log.addHandler(self)
        log.setLevel(logging.INFO)
        log.propagate = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        log.removeHandler(self)
        log.level, log.propagate = self._before

    def emit(self, record: logging.LogRecord) -> None:
        fields = getattr(record, FIELDS, {})
        self.events.append(Event(str(fields.get("event")), record.created - self._ahead_s))

    def hear(self, lines: Iterable[str]) -> None:
        """Take all log lines of processes that others have started, as JSON objects, in place of
        those taken before."""
        self._others = []
        for line in lines:
            told = json.loads(line)
            at = datetime.fromisoformat(told["time"]).timestamp()
            self._others.append(Event(str(told["event"]), at - self._ahead_s))

    def times(self, name: str, since: float) -> list[float]:
        """When an event was told, from a time on; the earliest first."""
        told = self.events + self._others
        return sorted(event.at for event in told if event == (name, max(event.at, since)))
