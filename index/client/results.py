"""Decoding of a service's JSON answers (`index.documents.answers`)."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct

from driftline.index.client.errors import ServiceError, ServiceUnavailable

T = TypeVar("T")


class FailedLine(Struct, frozen=True):
    """A line of a bulk request that was not written."""

    id: str
    error: ServiceError


class CurrentTime(msgspec.Struct, frozen=True):
    """Current T of the service, from the answer of `GET /healthz`."""

    at: str


def loads(data: bytes | str) -> object:
    """Decode a JSON value. Raises ServiceUnavailable if it is invalid."""
    return decode(data, object)


def decode(data: bytes | str, kind: type[T]) -> T:
    """Decode an answer to a type. Raises ServiceUnavailable if it is invalid."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _invalid_answer(data, error) from None


def convert(value: object, kind: type[T]) -> T:
    """Convert a decoded JSON value to a type. Raises ServiceUnavailable if it is invalid."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _invalid_answer(value, error) from None


def _invalid_answer(answer: object, why: Exception) -> ServiceUnavailable:
    text = f"not an answer of an index service: {str(answer)[:200]} ({why}); check the address"
    return ServiceUnavailable("answer", text)
