"""The interface of views and hosted views, and the updater that applies the journal to a view.

A view is a deterministic state machine over a prefix of the journal. So all its replicas give the
same answers as of the same T, whatever checkpoint they started from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from driftline.engine.wire.bundles import Item, item_time
from driftline.serve.journal.merging import Span

Question = Mapping[str, object]
"""A question, of values of the wire format (`engine.wire.codec`). `what` names its kind; `at`, if
given, is the T as of which to answer."""

PauseHook = Callable[[], None]
"""Called now and then during a long answer, so that the host can answer others."""


def no_pause() -> None:
    """Do nothing: the `PauseHook` of a caller without other questions."""


Answer = Mapping[str, object]
"""An answer, of values of the wire format. `at`: the T as of which it is."""


class View(Protocol):
    """A function of all outputs below a time."""

    @property
    def time(self) -> int:
        """T: all outputs below it have been applied, and no others."""

    def apply(self, time: int, items: Sequence[Item]) -> None:
        """Apply the outputs from `self.time` up to a later time, in label order."""

    def save(self) -> Iterator[bytes]:
        """Yield the current state of the view, in parts."""

    def load(self, parts: Iterable[bytes]) -> None:
        """Restore a saved view. Precondition: nothing has been applied.

        Raises SnapshotDamaged if the parts are of another view; this one is unusable then.
        """


class BackgroundJob(NamedTuple):
    """A job for a forked copy of the view's process."""

    what: str
    """The job, as it follows "cannot" in a log line."""
    do: Callable[[], None]
    """Runs in the copy; writes files, and returns nothing."""
    on_success: Callable[[], None]
    """Runs in the view's process after the job succeeded."""


class HostedView(View, Protocol):
    """A view in a process of its own, with questions, checkpoints and background jobs.

    A forked copy of the process writes a checkpoint: the copy has the view as of the fork, so no
    state is copied by hand and no question waits. `save` runs in the copy and may write files; it
    saves the view as it was frozen.
    """

    @property
    def since(self) -> int:
        """The smallest T as of which the view answers."""

    @property
    def damage(self) -> str:
        """The damage of its files that forces a rebuild of the view; "" if they are intact."""

    def settle(self) -> None:
        """Do the work deferred by `apply`. No answer depends on it, and none waits now."""

    def ask(self, question: Question, pause: PauseHook = no_pause) -> Answer:
        """Answer as of `question["at"]`, by default as of `time`. Raises ApiError.

        `pause`: may call `ask` for another question, but never `apply`.
        """

    def retain(self, since: int) -> None:
        """Drop history: stop answering as of times before `since`, which is at most `self.time`."""

    def freeze(self) -> None:
        """Prepare to save the current state: `save` is called next, in a forked copy."""

    def mark_saved(self) -> None:
        """Note that the frozen state is durable. Called in the process of `freeze`, perhaps late.

        Not called if saving failed; `freeze` may then be called again.
        """

    def next_job(self) -> BackgroundJob | None:
        """Return a background job that is due, or None.

        Not called between `freeze` and the end of saving, nor while another job runs.
        """

    def figures(self) -> Mapping[str, float]:
        """Return figures for status and metrics, by name."""


class ViewUpdater:
    """Updater of a view, with callbacks for times that the view reaches.

    Input: spans, as a follower of the journal or from `Journal.read`. Invariant: each output is
    applied once, in label order, even if spans repeat.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self._waiting: dict[int, Callable[[], None]] = {}
        """Number -> callback."""
        self._moments: list[tuple[int, int]] = []
        """A heap of (time, number), which may contain cancelled numbers."""
        self._number = 0

    def take(self, span: Span) -> bool:
        """Apply the new outputs of a span.

        Returns False, and does nothing, if there is a gap before the span: then read the journal
        from the view's time on.
        """
        view = self.view
        if span.since > view.time:
            return False
        if span.time > view.time:
            first = bisect_left(span.items, view.time, key=item_time)
            view.apply(span.time, span.items[first:] if first else span.items)
            self._call()
        return True

    def wait(self, time: int, callback: Callable[[], None]) -> int:
        """Call back once, as soon as the view has reached this time; perhaps at once.

        Returns a number for `cancel`.
        """
        self._number += 1
        if self.view.time >= time:
            callback()
        else:
            self._waiting[self._number] = callback
            heappush(self._moments, (time, self._number))
        return self._number

    def cancel(self, number: int) -> None:
        """Cancel a callback. No effect if it has run or was cancelled."""
        self._waiting.pop(number, None)
        if len(self._moments) > 2 * len(self._waiting) + 100:
            self._moments = [each for each in self._moments if each[1] in self._waiting]
            heapify(self._moments)

    def _call(self) -> None:
        while self._moments and self._moments[0][0] <= self.view.time:
            _, number = heappop(self._moments)
            callback = self._waiting.pop(number, None)
            if callback is not None:
                callback()
