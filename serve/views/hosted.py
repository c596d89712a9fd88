"""The interface of views and hosted views, and how a view follows the journal.

A view is a deterministic state machine over a prefix of the journal. So all replicas of a view give
the same answers as of the same T, whatever checkpoint each one started from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from driftline.engine.wire.bundles import Item, item_time
from driftline.serve.journal.merging import Span

Question = Mapping[str, object]
"""A question; its values have types of the wire format (`engine.wire.codec`).

`what`: the kind of the question; `at`, optional: the T as of which the view should answer.
"""

PauseHook = Callable[[], None]
"""Function that a view calls repeatedly while it computes a long answer.

The function may call `ask` of the same view for other questions, but never `apply`.
"""


def no_pause() -> None:
    """Do nothing. For callers that answer only one question at a time."""


Answer = Mapping[str, object]
"""An answer; its values have types of the wire format. `at`: the T as of which it holds."""


class View(Protocol):
    """State that depends only on the outputs below a time."""

    @property
    def time(self) -> int:
        """T: exactly the outputs below it have been applied."""

    def apply(self, time: int, items: Sequence[Item]) -> None:
        """Apply the outputs in [self.time, time), in label order; set `self.time` to `time`."""

    def save(self) -> Iterator[bytes]:
        """Yield the current state of the view, in parts."""

    def load(self, parts: Iterable[bytes]) -> None:
        """Restore a saved view. Precondition: nothing has been applied.

        Raises SnapshotDamaged if the parts are of another view; `self` is then unusable.
        """


class BackgroundJob(NamedTuple):
    """A job for a forked copy of the view's process."""

    what: str
    """What the job does, as a verb phrase: log lines put it after "cannot"."""
    do: Callable[[], None]
    """The job. It runs in the copy; its only results are the files that it writes."""
    on_success: Callable[[], None]
    """Callback in the view's process, called once the job has succeeded."""


class HostedView(View, Protocol):
    """A view in a separate process, with questions, checkpoints and background jobs.

    A forked copy of the process writes a checkpoint. The copy contains the view as it was at the
    fork, so the view copies no state and questions do not wait. The process calls `freeze`, and
    the copy `save`, which yields the state and may write large parts to files of its own.
    """

    @property
    def since(self) -> int:
        """The smallest T as of which the view answers."""

    @property
    def damage(self) -> str:
        """The damage of the view's files that forces a rebuild; "" if they are intact."""

    def do_deferred_work(self) -> None:
        """Do the work that `apply` deferred. Called between answers; no answer depends on it."""

    def ask(self, question: Question, pause: PauseHook = no_pause) -> Answer:
        """Answer as of `question["at"]`, by default as of `time`. Raises ApiError.

        `pause`: to be called repeatedly while a long answer is computed (see `PauseHook`).
        """

    def forget_before(self, since: int) -> None:
        """Drop the history before `since`, and reject later reads of it.

        Precondition: since <= self.time.
        """

    def freeze(self) -> None:
        """Prepare to save the current state: `save` is called next, in a forked copy."""

    def mark_saved(self) -> None:
        """Note that the frozen state is durable.

        Called in the process that called `freeze`, which may have applied more outputs since. Not
        called if saving failed; then `freeze` is called again.
        """

    def next_job(self) -> BackgroundJob | None:
        """Return a background job that is due, or None.

        Called only while no checkpoint is being saved and no other job runs.
        """

    def figures(self) -> Mapping[str, float]:
        """Return figures for status and metrics, by name."""


def apply_span(view: View, span: Span) -> bool:
    """Apply the new outputs of a span, each once and in label order, even if spans overlap.

    Returns False, without applying outputs, if outputs before the span are missing; then the caller
    has to read the journal from the view's time on.
    """
    if span.since > view.time:
        return False
    if span.time > view.time:
        skipped = bisect_left(span.items, view.time, key=item_time)
        view.apply(span.time, span.items[skipped:] if skipped else span.items)
    return True
