"""What a view is, how it follows the journal, and what a process needs of one that it hosts.

A view is a deterministic state machine over a prefix of the journal. So every replica of it answers
the same as of the same T, whenever it began and whatever checkpoint it began with.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from driftline.engine.wire.bundles import Item, item_time
from driftline.serve.journal.merging import Span

Question = Mapping[str, object]
"""What is asked: of values that travel (`engine.wire.codec`). `what` names the kind; `at`, if it is
there, is the T as of which the answer is."""

PauseHook = Callable[[], None]
"""Is called now and then while a long answer is made: others may be answered in it."""


def no_pause() -> None:
    """Go on at once."""


Answer = Mapping[str, object]
"""What is answered, of values that travel. `at`: the T as of which it is."""


class View(Protocol):
    """A function of all outputs below a time."""

    @property
    def time(self) -> int:
        """T: all outputs below it have been applied, and no others."""

    def apply(self, time: int, items: Sequence[Item]) -> None:
        """Apply the outputs from `self.time` up to a later time, in label order."""

    def save(self) -> Iterator[bytes]:
        """The view as of now, in parts."""

    def load(self, parts: Iterable[bytes]) -> None:
        """Become the view that was saved. Precondition: nothing has been applied.

        Raises SnapshotDamaged if the parts are of another view: then this one cannot be used.
        """


class BackgroundJob(NamedTuple):
    """Work that is due, apart from the view: a copy of the process does it."""

    what: str
    """The work, for people; the sentence begins with "it cannot"."""
    do: Callable[[], None]
    """In the copy. It writes files, and gives nothing back."""
    done: Callable[[], None]
    """Afterwards, in the process of the view, if it has not failed."""


class HostedView(View, Protocol):
    """A view that a process of its own hosts: it is asked, saved, and tidies up.

    A checkpoint is written by a copy of the process (fork), which has the view as it was at that
    moment: so nothing that is saved has to be copied first, and nobody who asks has to wait. `save`
    is called in the copy; it may write files. What it saves is the view as it was frozen.
    """

    @property
    def since(self) -> int:
        """As of this T and later ones there are answers."""

    @property
    def damaged(self) -> str:
        """Why the view has to be made anew, as its files are damaged; "" if they are not."""

    def settle(self) -> None:
        """Do what `apply` has put off: no answer depends on it, and none waits for it now."""

    def ask(self, question: Question, pause: PauseHook = no_pause) -> Answer:
        """Answer as of `question["at"]`, by default as of now. Raises Refused.

        `pause`: another question may be asked in it, but nothing is applied.
        """

    def retain(self, since: int) -> None:
        """Give no answers as of earlier times than this any more. It is at most `self.time`."""

    def freeze(self) -> None:
        """The view is going to be saved as it is now: `save` is called next, in a copy."""

    def saved(self) -> None:
        """What was frozen has been saved, durably; called where `freeze` was, perhaps much later.

        It is not called if saving has failed; `freeze` may be called again then.
        """

    def work(self) -> BackgroundJob | None:
        """Work that should be done beside; None: there is none. Not called between `freeze` and
        the end of saving, nor while other work is done."""

    def figures(self) -> Mapping[str, float]:
        """Figures for people and metrics, by name."""


class ViewUpdater:
    """Keeps a view up to date, and tells who waits for it.

    Takes: spans, of the journal's followers or of `Journal.read`. Invariant: each output is
    applied once, in label order, however often spans come again.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self._waiting: dict[int, Callable[[], None]] = {}
        """Number -> whom to call."""
        self._moments: list[tuple[int, int]] = []
        """A heap of (time, number), also of some who do not wait any more."""
        self._number = 0

    def take(self, span: Span) -> bool:
        """Apply what is new in a span.

        Returns False, and does nothing, if what comes before the span is missing: then the journal
        has to be read, from the view's time on.
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
        """Call back once, as soon as the view is as of this time or later; perhaps at once.

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
        """Do not call back. May be called too late, or again."""
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
