"""Status of event time in a running flow: its watermarks, and what holds them back.

The nodes report both (`StatusReport`).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from driftline.engine.event_time import ENDED, NEVER, Status, to_microseconds, watermark_text
from driftline.engine.wire.messages import StatusReport


class SourceEventTime(Struct, frozen=True):
    """Event time of a source."""

    name: str
    watermark: str | None
    """ISO 8601; None before the first record, and after the end."""
    state: str
    """active, idle or ended"""
    unmoved_s: float
    """Seconds for which neither watermark nor state has changed; the largest value of a node."""


class OperatorEventTime(Struct, frozen=True):
    """Event time of an operator with windows or timers."""

    name: str
    watermark: str | None
    """ISO 8601; None until each active source has had a record, and once all sources have ended."""
    held_back_by: str | None
    """The active source with the smallest watermark; None if no source is active."""


class EventTimeStatus(Struct, frozen=True):
    """Event time of a flow."""

    sources: tuple[SourceEventTime, ...]
    operators: tuple[OperatorEventTime, ...]

    def __str__(self) -> str:
        """Describe the smallest watermark of an operator, and what holds it back."""
        least = min(self.operators, key=_watermark_of)
        if _watermark_of(least) == ENDED:
            return "all sources have ended"
        text = f"watermark {least.watermark}" if least.watermark else "no watermark yet"
        for source in self.sources:
            if source.name == least.held_back_by:
                text += f" (held back by {source.name}, unmoved for {source.unmoved_s:.0f} s)"
        return text


def event_time_status(reports: Iterable[StatusReport]) -> EventTimeStatus | None:
    """Return the event time of a flow; None if no report names an operator with event time.

    Nodes are at different labels. So each watermark is the smallest one that a node reported.
    """
    sources: dict[str, tuple[int, int, int]] = {}
    operators: dict[str, tuple[int, str]] = {}
    for report in reports:
        for name, watermark, status, unmoved_ms in report.sources:
            least, least_status, longest_ms = sources.get(name, (watermark, status, unmoved_ms))
            furthest_behind = min((least, least_status), (watermark, status))
            sources[name] = (*furthest_behind, max(longest_ms, unmoved_ms))
        for name, watermark, held_back_by in report.operators:
            reported = watermark, held_back_by
            operators[name] = min(operators.get(name, reported), reported)
    if not operators:
        return None
    return EventTimeStatus(
        tuple(
            SourceEventTime(
                name, watermark_text(watermark), Status(status).name.lower(), unmoved_ms / 1000
            )
            for name, (watermark, status, unmoved_ms) in sources.items()
        ),
        tuple(
            OperatorEventTime(name, watermark_text(watermark), held_back_by or None)
            for name, (watermark, held_back_by) in operators.items()
        ),
    )


def _watermark_of(operator: OperatorEventTime) -> int:
    """Return the watermark of an operator as a number."""
    if operator.watermark is None:
        return ENDED if operator.held_back_by is None else NEVER
    return to_microseconds(operator.watermark)
