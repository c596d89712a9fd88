"""Reach: which members a master hears, but that do not hear it.

A network may fail in one direction only. A member that a master does not hear is silent; of one
that does not hear the master only this can be known: it says `Hello`, and never answers.

Takes: `Hello` and `Following` (members), that they were asked (`Lead`), and the time. Gives: for
how long each member has owed an answer. Invariant: only time counts in which the member said
`Hello` without a pause, so who is busy, or silent, is not taken for deaf.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

PAUSE_S = 1.0
"""A member that says no `Hello` for longer has read nothing meanwhile, either: it may be busy."""


@dataclass(slots=True)
class Voice:
    """A process that says `Hello`; `said`: when it did last; `owes`: since when an answer."""

    process: str
    said: float
    owes: float = inf


class Reach:
    """What members owe one master."""

    def __init__(self) -> None:
        self._voices: dict[str, Voice] = {}

    def hello(self, name: str, process: str, now: float) -> None:
        """A member was heard."""
        voice = self._voices.get(name)
        if voice is None or voice.process != process:
            self._voices[name] = Voice(process, now)
            return
        if voice.owes < inf and now - voice.said > PAUSE_S:
            voice.owes = now
        voice.said = now

    def asked(self, names: Iterable[str], now: float) -> None:
        """These members were asked for an answer."""
        for name in names:
            if (voice := self._voices.get(name)) is not None:
                voice.owes = min(voice.owes, now)

    def answered(self, name: str) -> None:
        """A member has heard the question."""
        if (voice := self._voices.get(name)) is not None:
            voice.owes = inf

    def forget(self, names: Iterable[str]) -> None:
        """These are no members any more."""
        for name in names:
            self._voices.pop(name, None)

    @property
    def deaf(self) -> dict[str, float]:
        """Member that says `Hello` and owes an answer -> for how many seconds it has."""
        return {n: v.said - v.owes for n, v in self._voices.items() if v.said > v.owes}
