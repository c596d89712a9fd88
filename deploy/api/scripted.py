"""A source of what a test sends: records with times that the test gives, kept for any replay."""

from __future__ import annotations

from collections.abc import Callable

from driftline.engine.sources import QueueSource


class ScriptedSource(QueueSource):
    """The records that a test has sent to one source.

    `now`: the time of the last record that the test has sent, to whatever source. A source that is
    idle promises, as a live one does, that it will have nothing up to then.
    """

    def __init__(self, name: str, now: Callable[[], int]) -> None:
        super().__init__(name)
        self._now = now

    def send(self, time: int, record: object) -> None:
        """Add a record. Its time is larger than those of all before."""
        self._records.append((time, record))

    def move_to(self, time: int) -> int:
        return self._now() + 1

    def trim(self, time: int) -> None:
        """Nothing is forgotten: a test is short."""
