"""`GET /views/{name}/{key}`: the value of a key of a key-value view, as of a T.

The question is `{"what": "value", "key": ..., "at": T}`, the answer of the shard that has the key
`{"at": T, "time": label time, "value": ...}`; one that has it not refuses it as "absent".
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from driftline.engine.ui.near import did_you_mean
from driftline.serve.errors import Refused
from driftline.serve.gateway.backend import Backend
from driftline.serve.http.changes import plain
from driftline.serve.http.jsons import dumps
from driftline.serve.http.operations import Body, Call, Operation, json_answer
from driftline.serve.http.parameters import AFTER, AT, TOKEN, Parameter, choice, within
from driftline.serve.http.times import as_of
from driftline.serve.views.tokens import token_of

NAME = Parameter("name", within(200), "", "The view.", {"type": "string"}, True, "path")
KEY = Parameter("key", within(4096), "", "The key.", {"type": "string"}, True, "path")
KIND = Parameter(
    "kind",
    choice("text", "number"),
    "text",
    "What the key is.",
    {"type": "string", "enum": ["text", "number"], "default": "text"},
)

_ANSWER = Body(
    {
        "type": "object",
        "required": ["at", "key", "label", "value"],
        "properties": {"at": TOKEN, "key": {}, "label": TOKEN, "value": {}},
    }
)


def value_operation(backend: Backend, views: Sequence[str]) -> Operation:
    """The operation for the views with these names."""

    async def does(call: Call) -> Response:
        name, key, time = call[NAME], _key(call), as_of(backend, call)
        if name not in views:
            there = f"there is {', '.join(views)}" if views else "there is none"
            raise Refused(
                "absent", f"there is no view {name!r}{did_you_mean(name, views)}; {there}"
            )
        question = {"what": "value", "key": key, "at": time}
        within_s = call.settings.within_s
        answers = await backend.ask(name, question, after=call[AFTER], within_s=within_s)
        for answer in answers:
            found = answer["time"]
            assert isinstance(found, int)
            told = {
                "at": token_of(time),
                "key": key,
                "label": token_of(found + 1),
                "value": plain(answer["value"]),
            }
            return json_answer(dumps(told))
        raise Refused("absent", f"{name} has no value of {key!r} as of then")

    return Operation(
        "GET",
        "/views/{name}/{key:path}",
        does,
        "value",
        "The value of a key.",
        (NAME, KEY, KIND, AT, AFTER),
        answer=_ANSWER,
        refusals=(404, 410, 503),
    )


def _key(call: Call) -> str | int | float:
    text = call[KEY]
    if call[KIND] == "text":
        return text
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise Refused("invalid", f"{text[:40]!r} is no number", {"parameter": "key"}) from None
