"""How the answers of a service are read from its JSON (`index.documents.answers`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from driftline.index.client.errors import ServiceError, ServiceUnavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FailedLine:
    """A line of a bulk that was not written."""

    id: str
    error: ServiceError


class Now(msgspec.Struct, frozen=True):
    """As of which T the service is."""

    at: str


def loads(data: bytes | str) -> object:
    """Return a value of JSON. This and the functions below raise Unavailable for anything else."""
    return decoded(data, object)


def decoded(data: bytes | str, kind: type[T]) -> T:
    """Return an answer that is of a kind."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _no_answer(data, error) from None


def converted(told: object, kind: type[T]) -> T:
    """Return a part of an answer, a value of JSON, that is of a kind."""
    try:
        return msgspec.convert(told, kind)
    except msgspec.ValidationError as error:
        raise _no_answer(told, error) from None


def _no_answer(told: object, why: Exception) -> ServiceUnavailable:
    text = (
        f"this is no answer of an index service: {str(told)[:200]} ({why}); is the address right?"
    )
    return ServiceUnavailable("answer", text)
