"""Questions to views in other processes, as they travel.

An asker says `ask` (number, question, `after`, how long it waits) or takes it back; it is answered
once, with an answer or a refusal. A question is never lost with a process: when the process of a
view is started again, the asker asks again what is not answered.
"""

from __future__ import annotations

from typing import NamedTuple

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import pack, unpack
from driftline.serve.errors import Refused
from driftline.serve.views.hosted import Answer, Question

_ASK, _TAKE_BACK, _ANSWER, _REFUSAL = range(4)


class Asked(NamedTuple):
    """A question; the view answers once it is as of `after`, within so many seconds."""

    number: int
    question: Question
    after: int
    within_s: float


class TakenBack(NamedTuple):
    """Nobody waits for the answer any more."""

    number: int


def encode_asked(asked: Asked | TakenBack) -> bytes:
    """A message to a view. Raises PayloadError if the question cannot travel."""
    if isinstance(asked, TakenBack):
        return pack((_TAKE_BACK, asked.number))
    return pack((_ASK, asked.number, dict(asked.question), asked.after, asked.within_s))


def decode_asked(data: bytes) -> Asked | TakenBack:
    """Decode `encode_asked`. Raises MalformedMessage."""
    match unpack(data):
        case (code, int(number), dict(question), int(after), int() | float() as within) if (
            code == _ASK
        ):
            return Asked(number, question, after, within)
        case (code, int(number)) if code == _TAKE_BACK:
            return TakenBack(number)
    raise MalformedMessage("not a question")


def encode_answer(number: int, answer: Answer | Refused) -> bytes:
    """A message of a view. Raises PayloadError if the answer cannot travel."""
    if isinstance(answer, Refused):
        return pack((_REFUSAL, number, answer.code, str(answer), answer.details))
    return pack((_ANSWER, number, dict(answer)))


def decode_answer(data: bytes) -> tuple[int, Answer | Refused]:
    """(number of the question, answer). Raises MalformedMessage."""
    match unpack(data):
        case (code, int(number), dict(answer)) if code == _ANSWER:
            return number, answer
        case (code, int(number), str(kind), str(text), dict(details)) if code == _REFUSAL:
            return number, Refused(kind, text, details)
    raise MalformedMessage("not an answer")
