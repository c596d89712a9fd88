"""Problems as answers: `{"error": {"code": ..., "message": ..., ...}}`.

>>> answer = problem(Refused("absent", "there is no such document"))
>>> answer.status_code, bytes(answer.body)
(404, b'{"error":{"code":"absent","message":"there is no such document"}}')
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from driftline.engine.errors import DriftlineError
from driftline.serve.errors import BadToken, NoLongerRetained, Refused
from driftline.serve.http.content.jsons import Json, dumps
from driftline.serve.views.tokens import token_of

STATUS = {
    "invalid": 400,
    "query": 400,
    "token": 401,
    "right": 403,
    "absent": 404,
    "path": 404,
    "method": 405,
    "slow": 408,
    "changed": 409,
    "retained": 410,
    "large": 413,
    "costly": 422,
    "busy": 429,
    "internal": 500,
    "unavailable": 503,
    "full": 507,
}
"""The status of each code."""

INTERNAL = Refused("internal", "the server has failed; its log says why")

ENDS = Refused("unavailable", "the service has ended before there was an answer: ask again")


def refusal_of(error: DriftlineError) -> Refused:
    """What a client is told of an error that it has caused or met."""
    match error:
        case Refused():
            return error
        case NoLongerRetained():
            return Refused("retained", str(error), {"oldest": error.oldest})
        case BadToken():
            return Refused("invalid", str(error))
    return Refused("unavailable", str(error))


def described(refused: Refused) -> dict[str, Json]:
    """A refusal as JSON."""
    details = {name: _detail(name, value) for name, value in refused.details.items()}
    return {"error": {"code": refused.code, "message": str(refused), **details}}


def problem(
    refused: Refused, headers: Mapping[str, str] | None = None, retry_s: float = 1.0
) -> Response:
    """The answer to a request that is refused."""
    status = STATUS.get(refused.code, 500)
    more = dict(headers or {})
    if status in (429, 503):
        more["Retry-After"] = str(max(1, round(retry_s)))
    if status == 401:
        more["WWW-Authenticate"] = "Bearer"
    return Response(dumps(described(refused)), status, more, "application/json")


def _detail(name: str, value: object) -> Json:
    if name == "oldest" and isinstance(value, int):
        return token_of(value)
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return value.encode("utf-8", "replace").decode()  # half a character cannot be told
        case list() | tuple():
            return [_detail("", each) for each in value]
        case Mapping():
            return {str(key): _detail("", each) for key, each in value.items()}
    return str(value)
