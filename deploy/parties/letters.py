"""Log lines about dead letters: the first at once, then how many there were, and the last one.

Takes: failures that a consumer has stored, or bad records that were set aside, each once; and the
time. Invariant: however many there are, no more than two lines a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from driftline.engine.events import TOLD_EVERY_S, Field, about, log
from driftline.engine.flow.context import Failure
from driftline.engine.moments import time_in_words
from driftline.engine.sources import BadRecord
from driftline.engine.wire.bundles import Item


class DeadLetters:
    """The lines of one process; `where`: the directory that has them."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._count = 0
        """Dead letters since the last line."""
        self._last = ""
        self._fields: dict[str, Field] = {}
        self._first = True
        self._tell_at = -inf

    def failed(self, now: float, failures: Sequence[Item]) -> None:
        """Elements whose function has failed are stored, or none; `now`: seconds, monotonic."""
        if not failures:
            self.tell(now)
            return
        label, value = failures[-1].label, failures[-1].value
        assert isinstance(value, tuple)
        last = Failure(*value)
        place = f"{time_in_words(label[0])} of input {label[1]}"
        self._last = f"operator {last.operator!r} failed at {place}: {last.error}; at: {last.line}"
        self._fields = {
            "operator": last.operator,
            "label": str(list(label)),
            "error": last.error,
            "line": last.line,
        }
        self._add(now, len(failures))

    def unreadable(self, now: float, records: Sequence[BadRecord]) -> None:
        """Records that cannot be taken are set aside, or none."""
        if not records:
            self.tell(now)
            return
        last = records[-1]
        self._last = f"{last.file}, {time_in_words(last.time)}: {last.reason}"
        self._fields = {"file": last.file, "record": last.time, "error": last.reason}
        self._add(now, len(records))

    def tell(self, now: float) -> None:
        """Log what there was since the last line, if it is time to."""
        if not self._count or now < self._tell_at:
            return
        more = "" if self._first else " more"
        what = f"1{more} dead letter" if self._count == 1 else f"{self._count}{more} dead letters"
        which = "" if self._count == 1 else "the last one: "
        told = about("dead-letters", count=self._count, directory=self._where, **self._fields)
        log.warning("%s in %s: %s%s", what, self._where, which, self._last, extra=told)
        self._count, self._first = 0, False
        self._tell_at = now + TOLD_EVERY_S

    def _add(self, now: float, count: int) -> None:
        self._count += count
        self.tell(now)
