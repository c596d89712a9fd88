"""The host of a view: keeps it up to date, answers questions, and has checkpoints of it written.

Takes: spans and what is durable (journal), questions (askers), and the ends of copies of the
process. Gives: answers, credit for spans, and work for copies.
Invariants: a question is answered once, as of its `at` or now, and not before the view is as of
`at` and `after`. A checkpoint is never ahead of what is durable in the journal: it is begun at a
moment at which the view is not. One copy works at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush

from driftline.engine.errors import DriftlineError, MalformedMessage, PayloadError
from driftline.engine.events import Trouble, about, log
from driftline.engine.moments import time_in_words
from driftline.engine.wire.party import Party
from driftline.serve.errors import Refused
from driftline.serve.hosting.asking import Asked, TakenBack, decode_asked, encode_answer
from driftline.serve.hosting.feeds import FOLLOW_EVERY_S, Following, Lost, Stored
from driftline.serve.views.hosted import HostedView, Question, Work
from driftline.serve.views.view import Follower

SLICE_S = 0.005
"""For so long questions are answered before the next span has its turn."""

ASKED_MAX = 10_000
"""Questions that wait at most; more are refused."""

STATUS = "status"
"""The question that the host answers itself."""

AGAIN_S = 10.0
"""The pause after a checkpoint that could not be written."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When a checkpoint is due: after so many seconds, or outputs. `retained_s`: for so long the
    newest T stays one that can be asked as of."""

    seconds: float
    items: int
    retained_s: float


class ViewHost(Party):
    """The host of one shard of a view.

    `following`: what it says to the journal; `kept`: as of which time its checkpoint is; `publish`:
    writes a checkpoint, in a copy; `clock`: in seconds, for how long spans and questions take.
    """

    def __init__(
        self,
        name: str,
        view: HostedView,
        following: Following,
        kept: int,
        pace: Pace,
        publish: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(name)
        self.view = view
        self.following = following
        self.kept = kept
        self.answers: list[tuple[bytes, bytes]] = []
        """(route of an asker, message)"""
        self.to_journal: list[bytes] = []
        self.work: Work | None = None
        """What a copy is to do, or does; `worked` says how it ended."""
        self.lost: Lost | None = None
        """The journal has no longer what the view needs."""
        self.answered = 0
        self.applied = 0
        self.apply_s = self.ask_s = 0.0
        """Seconds spent with spans, and with questions."""
        self._follower = Follower(view)
        self._pace = pace
        self._publish = publish
        self._clock = clock
        self._ready: deque[tuple[bytes, int]] = deque()
        self._asked: dict[tuple[bytes, int], Asked] = {}
        self._waits: dict[tuple[bytes, int], int] = {}
        self._deadlines: list[tuple[float, bytes, int]] = []
        self._items = 0
        """Outputs since the last checkpoint."""
        self._saved_at = 0.0
        self._saving = False
        self._past: deque[tuple[float, int]] = deque()
        """(when, T as of then) of checkpoints; only the first may be older than what is retained.
        """
        self._told = Trouble("checkpoint-failed")
        self._unread = Trouble("view-not-following")

    # From the journal.

    def hear(self, data: bytes) -> None:
        """A message of the journal."""
        heard = self.following.hear(data)
        if isinstance(heard, Lost) and heard.oldest < 0:  # the next `follow` tries again
            text = f"{self.name} cannot follow the journal: {heard.reason}; trying again"
            self._unread.failed(self.now, text, view=self.name)
        elif isinstance(heard, Lost):
            self.lost = heard
        elif not isinstance(heard, Stored):
            began = self._clock()
            self._unread.over(self.now, f"{self.name} can follow the journal again")
            if self._follower.take(heard):
                self._items += len(heard.items)
                self.applied += len(heard.items)
            self.apply_s += self._clock() - began
        if credit := self.following.credit():
            self.to_journal.append(credit)

    def tick(self, now: float) -> float:
        self.to_journal.append(self.following.follow(self.kept))
        while self._deadlines and self._deadlines[0][0] <= now:
            _, route, number = heappop(self._deadlines)
            self._give_up(route, number)
        return min(now + FOLLOW_EVERY_S, super().tick(now))

    # From askers.

    def take(self, route: bytes, data: bytes) -> None:
        """A message of an asker; a malformed one is dropped."""
        try:
            asked = decode_asked(data)
        except MalformedMessage:
            self.malformed += 1
            return
        if isinstance(asked, TakenBack):
            self._forget(route, asked.number)
            return
        key = route, asked.number
        if key in self._asked:
            return  # it was asked again, as if this process were another one
        if len(self._asked) >= ASKED_MAX:
            refusal = Refused("busy", f"{self.name} has {ASKED_MAX} questions to answer")
            self._answer(route, asked.number, refusal)
            return
        self._asked[key] = asked
        at = asked.question.get("at")
        until = max(asked.after, at if isinstance(at, int) else 0)
        if until > self.view.time:
            heappush(self._deadlines, (self.now + asked.within_s, route, asked.number))
        self._waits[key] = self._follower.wait(until, partial(self._ready.append, key))

    def turn(self) -> bool:
        more = super().turn()
        until = self._clock() + SLICE_S
        while self._ready:
            self._answer_next()
            if self._clock() >= until:
                break
        self._look_for_work()
        return more or bool(self._ready)

    def _answer_next(self) -> None:
        route, number = key = self._ready.popleft()
        asked = self._asked.pop(key, None)
        if asked is None:
            return  # it was taken back
        del self._waits[key]
        began = self._clock()
        try:
            if asked.question.get("what") == STATUS:
                answer = {"time": self.view.time, "since": self.view.since, **self.figures()}
                self._answer(route, number, answer)
            else:
                self._answer(route, number, self.view.ask(asked.question))
        except Refused as refused:
            self._answer(route, number, refused)
        except DriftlineError as error:
            self._answer(route, number, Refused("unavailable", str(error)))
        except Exception as error:  # a mistake of ours: others are answered all the same
            told = about("question-failed", view=self.name, question=_kind(asked.question))
            log.exception("%s could not answer a question", self.name, extra=told)
            text = f"{self.name} could not answer: {type(error).__name__}"
            self._answer(route, number, Refused("internal", text))
        self.ask_s += self._clock() - began
        self.answered += 1

    def _answer(self, route: bytes, number: int, answer: Mapping[str, object] | Refused) -> None:
        try:
            data = encode_answer(number, answer)
        except PayloadError as error:
            data = encode_answer(number, Refused("internal", f"the answer {error}"))
        self.answers.append((route, data))

    def _give_up(self, route: bytes, number: int) -> None:
        asked = self._forget(route, number)
        if asked is not None:
            text = (
                f"{self.name} has outputs up to {time_in_words(self.view.time)}, and had not those "
                f"that were asked for within {asked.within_s:g} s"
            )
            self._answer(route, number, Refused("unavailable", text))

    def _forget(self, route: bytes, number: int) -> Asked | None:
        asked = self._asked.pop((route, number), None)
        if asked is not None:
            self._follower.cancel(self._waits.pop((route, number)))
        return asked

    # Checkpoints, and work beside.

    def _look_for_work(self) -> None:
        if self.work is not None:
            return
        view = self.view
        # In a bulk load a checkpoint grows with each: the more there is, the rarer they are.
        most = max(self._pace.items, min(4 * self._pace.items, self.applied // 10))
        due = self.now >= self._saved_at + self._pace.seconds or self._items >= most
        if due and self._items and self.following.stored >= view.time:
            view.retain(self._retained_from())
            view.freeze()
            self._items, self._saving = 0, True
            self.work = Work("write a checkpoint", self._publish, partial(self._saved, view.time))
        else:
            self.work = view.work()

    def _retained_from(self) -> int:
        """The T that was the newest, the retained time ago."""
        past = self._past
        past.append((self.now, self.view.time))
        while len(past) > 1 and past[1][0] <= self.now - self._pace.retained_s:
            past.popleft()
        return past[0][1] if past[0][0] <= self.now - self._pace.retained_s else self.view.since

    def worked(self, well: bool) -> None:
        """The copy has ended; `well`: it has done its work."""
        assert self.work is not None
        work, self.work = self.work, None
        text = f"{self.name} cannot {work.what}: see the lines above; trying again"
        if well:
            work.done()
            self._told.over(self.now, f"{self.name} can {work.what} again")
        else:
            self._told.failed(self.now, text, view=self.name)
            self._items += self._saving  # it is due again
            self._saved_at = self.now - self._pace.seconds + AGAIN_S
        self._saving = False

    def _saved(self, time: int) -> None:
        self._saved_at = self.now
        self.kept = time
        self.view.saved()

    def figures(self) -> dict[str, float]:
        """Figures of the host and its view, by name."""
        return {
            "checkpoint": self.kept,
            "answered": self.answered,
            "applied": self.applied,
            "apply_s": self.apply_s,
            "ask_s": self.ask_s,
            "waiting": len(self._asked),
            **self.view.figures(),
        }


def _kind(question: Question) -> str:
    return str(question.get("what"))[:40]
