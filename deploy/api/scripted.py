"""The sources of a `FlowTest`: the test gives records and their times."""

from __future__ import annotations

from collections.abc import Callable

from driftline.engine.sources import QueueSource


class ScriptedSource(QueueSource):
    """The records that a test has sent to one source. None is forgotten: any may be replayed.

    `now`: returns the time of the last record that the test has sent to any source. An idle source
    promises, like a live one, that it has no record up to that time.
    """

    def __init__(self, name: str, now: Callable[[], int]) -> None:
        super().__init__(name)
        self._now = now

    def send(self, time: int, record: object) -> None:
        """Add a record. Precondition: its time is larger than all earlier ones."""
        self._records.append((time, record))

    def move_to(self, time: int) -> int:
        return self._now() + 1

    def trim(self, time: int) -> None:
        """Forget nothing: a test is short."""
