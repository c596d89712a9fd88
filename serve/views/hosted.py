"""What a process needs of a view that it hosts: to ask it, to save it, and to let it tidy up.

A checkpoint is written by a copy of the process (fork), which has the view as it was at that
moment: so nothing that is saved has to be copied first, and nobody who asks has to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from driftline.engine.wire.bundles import Item

Question = Mapping[str, object]
"""What is asked: of values that travel (`engine.wire.codec`). `what` names the kind; `at`, if it is
there, is the T as of which the answer is."""

Answer = Mapping[str, object]
"""What is answered, of values that travel. `at`: the T as of which it is."""


class Work(NamedTuple):
    """Work that is due, apart from the view: a copy of the process does it."""

    what: str
    """The work, for people; the sentence begins with "it cannot"."""
    do: Callable[[], None]
    """In the copy. It writes files, and gives nothing back."""
    done: Callable[[], None]
    """Afterwards, in the process of the view, if it has not failed."""


class HostedView(Protocol):
    """A view that a process of its own hosts."""

    @property
    def time(self) -> int:
        """T: all outputs below it have been applied, and no others."""

    @property
    def since(self) -> int:
        """As of this T and later ones there are answers."""

    @property
    def damaged(self) -> str:
        """Why the view has to be made anew, as its files are damaged; "" if they are not."""

    def apply(self, time: int, items: Sequence[Item]) -> None:
        """Apply the outputs from `self.time` up to a later time, in label order."""

    def settle(self) -> None:
        """Do what `apply` has put off: no answer depends on it, and none waits for it now."""

    def ask(self, question: Question) -> Answer:
        """Answer as of `question["at"]`, by default as of now. Raises Refused."""

    def retain(self, since: int) -> None:
        """Give no answers as of earlier times than this any more. It is at most `self.time`."""

    def freeze(self) -> None:
        """The view is going to be saved as it is now: `save` is called next, in a copy."""

    def save(self) -> Iterator[bytes]:
        """The view as it was frozen, in parts. Called in a copy of the process; may write files."""

    def saved(self) -> None:
        """What was frozen has been saved, durably; called where `freeze` was, perhaps much later.

        It is not called if saving has failed; `freeze` may be called again then.
        """

    def load(self, parts: Iterable[bytes]) -> None:
        """Become the view that was saved. Precondition: nothing has been applied.

        Raises SnapshotDamaged if the parts are of another view, or files are missing or damaged.
        """

    def work(self) -> Work | None:
        """Work that should be done beside; None: there is none. Not called between `freeze` and
        the end of saving, nor while other work is done."""

    def figures(self) -> Mapping[str, float]:
        """Figures for people and metrics, by name."""
