"""The interface between the HTTP server of a service and its flow, journal and views.

Times are integers; `serve.views.tokens` converts them to text. Not thread-safe: call it from one
asyncio loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from driftline.engine.wire.bundles import Item
from driftline.serve.journal import Span
from driftline.serve.views.hosted import Answer, Question

WITHIN_S = 10.0
"""Default timeout of a read that waits until a view reaches a T, in seconds."""


class Backend(Protocol):
    """A running service."""

    @property
    def time(self) -> int:
        """T: all outputs below it have arrived at the gateway; 0 while the service starts."""

    @property
    def started(self) -> bool:
        """Whether the gateway has caught up with the previous session, or the wait timed out."""

    @property
    def stalled_s(self) -> float:
        """Seconds for which records have waited since T last advanced; 0 if none waits."""

    @property
    def oldest(self) -> int:
        """Lower bound of the times from which outputs can still be read; 0 if unknown."""

    def view_time(self, view: str) -> int:
        """Return T: all shards of the view have applied all outputs below T. T never decreases.

        A read as of this T does not wait for ingestion.
        """

    async def write(self, record: object, *, bulk: bool = False) -> int:
        """Pass a record to the flow's source. `bulk`: part of a bulk; single records overtake it.

        Returns:
            The label time of the record, once the record is durable; its outputs follow later.

        Raises:
            ApiError: "busy" (the queue of single records is full: retry later), "full" (the disk is
                full), "unavailable" (the record cannot be stored now for another reason), "invalid"
                (the record cannot be encoded, or is too large).
        """

    async def wait_for_outputs(self, time: int, within_s: float = WITHIN_S) -> Sequence[Item]:
        """Return the outputs with this label time, once T is above it.

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
        Raises the ApiError of the view: "absent" if all shards raise it; "unavailable" if a shard
        does not reach that T within `within_s`, or its process does not answer. Cancelling the
        task cancels the question.
        """

    def spans(self, since: int) -> AsyncGenerator[Span, None]:
        """Yield all outputs from a time on, in order, without end.

        Yields at least one span per second, which may be empty. A slow reader delays no other
        reader. Raises RetentionExceeded.
        """

    def figures(self) -> Mapping[str, Mapping[str, float]]:
        """Return the figures of each part (a view's shard, the journal, ...), by part and name."""
