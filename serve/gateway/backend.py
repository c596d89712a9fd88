"""The interface between the HTTP server of a service and its flow, journal and views.

All times are T as integers (`serve.views.tokens` converts them to text). Not thread-safe: all
calls come from one asyncio loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from driftline.engine.wire.bundles import Item
from driftline.serve.journal import Span
from driftline.serve.views.hosted import Answer, Question

WITHIN_S = 10.0
"""Default timeout of a read that waits for a T that a view has not reached."""


class Backend(Protocol):
    """A running service."""

    @property
    def time(self) -> int:
        """T: all outputs below it have arrived here; 0 while the service starts."""

    @property
    def started(self) -> bool:
        """Whether `time` has caught up with the previous session, or that timed out."""

    @property
    def stalled_s(self) -> float:
        """Seconds that records have waited while T did not advance; 0 if none waits."""

    @property
    def oldest(self) -> int:
        """The smallest time from which outputs can still be read."""

    def view_time(self, view: str) -> int:
        """Return T: all shards of the view have applied all outputs below it. It never decreases.

        A read as of this T does not wait for ingestion.
        """

    async def write(self, record: object, *, bulk: bool = False) -> int:
        """Pass a record to the flow's source. `bulk`: one of many; single ones overtake it.

        Returns:
            The label time of the record, once it is durable; its outputs will follow.

        Raises:
            ApiError: "busy" (no room for a single record: retry later), "full" (the disk),
                "unavailable" (it cannot be stored now for another reason), "invalid" (it cannot be
                encoded, or is too large).
        """

    async def wait_for_outputs(self, time: int, within_s: float = WITHIN_S) -> Sequence[Item]:
        """Return the outputs with this label time, once the journal has passed it.

        Raises ApiError "unavailable" after `within_s`.
        """

    async def ask(
        self,
        view: str,
        question: Question,
        *,
        after: int = 0,
        within_s: float = WITHIN_S,
        asker: str = "",
    ) -> Sequence[Answer]:
        """Return the answers of the shards of a view, in the order of shards.

        `asker`: the client; a shard shares its time fairly between clients.
        A shard answers once it has applied all outputs below `after`, and below `question["at"]`.
        Shards that answer "absent" are left out if another shard answers.
        Raises the ApiError of the view: "absent" if all shards raise it, "unavailable" after
        `within_s`, also if no process of the view can be reached in that time. Cancelling the task
        cancels the question.
        """

    def spans(self, since: int) -> AsyncGenerator[Span, None]:
        """Yield all outputs from a time on, in order, without end.

        At least one span a second, if need be an empty one. A slow reader delays no other one.
        Raises RetentionExceeded.
        """

    def figures(self) -> Mapping[str, Mapping[str, float]]:
        """Return the figures of each part (a view's shard, the journal, the flow), by its name."""
