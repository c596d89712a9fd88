"""Log lines about dead letters: the first at once, then how many there were, and the last one.

Takes: failures that a consumer has stored, or bad records that were set aside, each once; and the
time. Invariant: each is counted in a line, and however many there are, there are no more than two
lines a minute, and one at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from driftline.engine.events import TOLD_EVERY_S, Field, RateLimitedLog, about, log
from driftline.engine.operators.context import parts
from driftline.engine.operators.users import is_of_driftline
from driftline.engine.sources import BadRecord
from driftline.engine.texts import counted, time_in_words, visible
from driftline.engine.wire.bundles import Item


class DeadLetters(RateLimitedLog):
    """The lines of one process; `where`: the directory that has them."""

    def __init__(self, where: str) -> None:
        super().__init__("dead-letters", where, pause_s=TOLD_EVERY_S)
        self._fields: dict[str, Field] = {}
        """About the last dead letter."""
        self._more = ""

    def failed(self, now: float, failures: Sequence[Item]) -> None:
        """Elements whose function has failed are stored, or none; `now`: seconds, monotonic."""
        if not failures:
            return
        label, value = failures[-1].label, failures[-1].value
        operator, _, _, error, line, _ = parts(value)
        place = f"{time_in_words(label[0])} of input {label[1]}"
        self._fields = {
            "operator": operator,
            "label": str(list(label)),
            "error": error,
            "line": line,
        }
        at = "" if is_of_driftline(line) else f"; at: {line}"
        text = f"operator {operator!r} failed at {place}: {error}{at}"
        self.add(now, visible(text), len(failures))

    def unreadable(self, now: float, records: Sequence[BadRecord]) -> None:
        """Records that cannot be taken are set aside, or none."""
        if not records:
            return
        last = records[-1]
        self._fields = {"file": last.file, "record": last.time, "error": last.reason}
        text = f"{last.file}, {time_in_words(last.time)}: {last.reason}"
        self.add(now, visible(text), len(records))

    def _log(self, count: int, last: str) -> None:
        letters = counted(count, f"{self._more}dead letter")
        which = "the last one: " * (count > 1)
        told = about(self._event, count=count, directory=self._what, **self._fields)
        log.warning("%s in %s: %s%s", letters, self._what, which, last, extra=told)
        self._more = "more "
