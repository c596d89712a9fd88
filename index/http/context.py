"""Shared parts of the index routes: the index, and the collection that a request names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec
from starlette.responses import Response

from driftline.engine.errors import MalformedMessage
from driftline.engine.texts import did_you_mean
from driftline.index.documents.schema import ID_BYTES_MAX, Collection, Schema
from driftline.index.searcher.messages import CountQuestion, FoundTotal, IndexQuestion, to_message
from driftline.serve.errors import ApiError
from driftline.serve.gateway.backend import Backend
from driftline.serve.http.content import Json, json_answer
from driftline.serve.http.operations import Call, HttpSettings
from driftline.serve.http.parameters import AFTER, Parameter, text_up_to
from driftline.serve.http.reads import as_of, newest

AnswerT = TypeVar("AnswerT")

VIEW = "documents"
"""Name of the view that contains all collections."""

DEFAULT_NAME = "documents"
"""Collection that a request uses if its path names none and the index has several."""

COLLECTION = Parameter(
    "collection", text_up_to(64), "", "The collection.", {"type": "string"}, True, "path"
)

ID_SCHEMA: dict[str, Json] = {"type": "string", "minLength": 1, "maxLength": ID_BYTES_MAX}
ID = Parameter(
    "id",
    text_up_to(ID_BYTES_MAX, "bytes"),
    "",
    "The id of the document: 1 to 512 bytes of UTF-8, percent-encoded; a slash is %2F.",
    ID_SCHEMA,
    True,
    "path",
)


@dataclass(frozen=True)
class Index:
    """A served index."""

    backend: Backend
    schema: Schema
    settings: HttpSettings

    @property
    def default(self) -> str:
        """Name of the collection for a path that names none; the schema may lack it."""
        collections = self.schema.collections
        return DEFAULT_NAME if len(collections) > 1 else next(iter(collections))

    def collection(self, call: Call) -> Collection:
        """Return the collection that a request names, or the default. Raises ApiError."""
        collections = self.schema.collections
        name = call[COLLECTION] or self.default
        collection = collections.get(name)
        if collection is None:
            raise ApiError(
                "absent",
                f"there is no collection {name!r}{did_you_mean(name, collections)}; the "
                f"collections are {', '.join(collections)}, as in "
                f"/collections/{next(iter(collections))}/search",
            )
        return collection

    def as_of(self, call: Call) -> int:
        """Return the T of a read (`reads.as_of`). Raises ApiError."""
        return as_of(self.backend, call, VIEW)

    @property
    def newest(self) -> int:
        """Newest T that all shards have reached. Raises ApiError while the service starts."""
        return newest(self.backend, VIEW)

    async def ask(
        self, call: Call, question: IndexQuestion, kind: type[AnswerT], after: int | None = None
    ) -> list[AnswerT]:
        """Ask all shards, and return the answers of those that have one. Raises ApiError.

        `kind`: type of the answers; `after`: T that the shards must have reached before they
        answer, by default the request's parameter `after`.
        """
        after = call[AFTER] if after is None else after
        return await self._ask(question, after, call.settings.timeout_s, kind, call.client)

    async def ask_first(
        self, call: Call, question: IndexQuestion, kind: type[AnswerT], after: int | None = None
    ) -> AnswerT:
        """Ask all shards and return the first answer. Raises ApiError "absent" if there is none."""
        for answer in await self.ask(call, question, kind, after):
            return answer
        raise ApiError("absent", "there is no such document or watch")

    async def wait_visible(self, collection: Collection, time: int, timeout_s: float) -> None:
        """Wait until all shards can answer as of `time`. Raises ApiError."""
        question = CountQuestion(collection=collection.name, q=NO_MATCH_QUERY, at=time)
        await self._ask(question, time, timeout_s, FoundTotal)

    async def _ask(
        self,
        question: IndexQuestion,
        after: int,
        timeout_s: float,
        kind: type[AnswerT],
        client: str = "",
    ) -> list[AnswerT]:
        """Ask all shards, as `ask` does; `client`: name of the client, for fair scheduling."""
        message, scheduled_client = to_message(question), f"{client}/{question.collection}"
        answers = await self.backend.ask(
            VIEW, message, after=after, timeout_s=timeout_s, client=scheduled_client
        )
        try:
            return [msgspec.convert(answer, kind) for answer in answers]
        except msgspec.ValidationError as error:
            raise MalformedMessage(f"a searcher sent an invalid answer: {error}") from None


NO_MATCH_QUERY = "-*"
"""A query that matches nothing and reads no postings."""


def json_of(answer: msgspec.Struct) -> Response:
    """Encode an answer (`index.documents.answers`) as a JSON response."""
    return json_answer(msgspec.json.encode(answer))
