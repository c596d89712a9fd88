"""Responses of a service conform to its OpenAPI description and have no undescribed fields."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from driftline.serve.errors import ApiError, RetentionExceeded
from driftline.serve.http.flow_application import event_encoder, flow_application
from driftline.serve.http.operations import HttpSettings
from driftline.serve.http.reads import changes
from driftline.serve.journal import Span
from driftline.serve.views.keyvalue import KeyValueView
from tests.index.http.service import IndexBackend, client_of, served
from tests.index.http.test_events import BEGINNING, Event, events
from tests.index.http.test_reading import put_teas, schema_of
from tests.serve.http.backends import FlowBackend
from tests.serve.http.test_flow_application import counting


class StrictDescription:
    """OpenAPI description under which undescribed fields are errors."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.operations: dict[str, dict[str, Any]] = {
            operation["operationId"]: operation
            for path in description["paths"].values()
            for operation in path.values()
        }
        self.components = forbid_other_fields(description["components"])

    def check(self, schema: dict[str, Any], value: object) -> None:
        Draft202012Validator(
            {**forbid_other_fields(schema), "components": self.components}
        ).validate(value)

    def check_answer(self, name: str, answer: httpx.Response) -> None:
        described = self.operations[name]["responses"][str(answer.status_code)]
        self.check(described["content"]["application/json"]["schema"], answer.json())
        assert {each.lower() for each in described.get("headers", ())} <= set(answer.headers)

    def check_item(self, name: str, value: object) -> None:
        """Validate a line or an event of a stream."""
        (body,) = self.operations[name]["responses"]["200"]["content"].values()
        self.check(body["x-itemSchema"], value)

    def check_event(self, name: str, event: Event) -> None:
        called, id, data = event
        named = {"event": called} if called else {}
        self.check_item(name, {**named, **({"id": id} if id else {}), "data": data})


def forbid_other_fields(schema: Any) -> Any:
    """Return the schema with `additionalProperties: false` in each object."""
    match schema:
        case {"properties": dict(), **_rest} if "additionalProperties" not in schema:
            return {
                **{k: forbid_other_fields(v) for k, v in schema.items()},
                "additionalProperties": False,
            }
        case dict():
            return {key: forbid_other_fields(value) for key, value in schema.items()}
        case [*each]:
            return [forbid_other_fields(one) for one in each]
    return schema


async def described_by(client: httpx.AsyncClient) -> StrictDescription:
    return StrictDescription((await client.get("/openapi.json")).json())


ANSWERS = (
    ("search_of", "GET", "/search?q=tea&facet=tags&field=title&field=year", ""),
    ("search_of", "GET", "/search?q=tea&sort=-year&limit=3&snippets=0", ""),
    ("count_of", "GET", "/count?q=tea", ""),
    ("explain_of", "GET", "/explain?q=tea+leaves+te*&id=t3", ""),
    ("get_document_of", "GET", "/documents/t3", ""),
    ("put_document_of", "PUT", "/documents/t3?key=a", '{"title": "tea"}'),
    ("put_document_of", "PUT", "/documents/t3?key=a", '{"title": "tea"}'),
    ("delete_document_of", "DELETE", "/documents/none?key=b", ""),
    ("put_watch_of", "PUT", "/watches/w", '{"q": "tea"}'),
    ("get_watch_of", "GET", "/watches/w", ""),
    ("watches_of", "GET", "/watches", ""),
    ("delete_watch_of", "DELETE", "/watches/w", ""),
)

PROBLEMS: tuple[tuple[str, str, str, str, set[str]], ...] = (
    ("search_of", "GET", "/search?q=(tea", "", {"position", "picture"}),
    ("search_of", "GET", "/search?q=tea&limt=1", "", {"parameter"}),
    ("put_document_of", "PUT", "/documents/t3", '{"title": 7}', {"field"}),
    ("put_document_of", "PUT", "/documents/t3?if_label=none", "{}", {"label"}),
    ("put_document_of", "PUT", f"/documents/new?if_label={BEGINNING[:-3]}pqs", "{}", {"label"}),
    ("put_watch_of", "PUT", "/watches/w", '{"q": "(tea"}', {"position", "picture"}),
    ("count_of", "GET", f"/count?q=tea&at={BEGINNING}", "", {"oldest"}),
    ("get_document_of", "GET", "/documents/none", "", set()),
)


async def test_all_fields_of_answers_and_problems_are_described(tmp_path: Path) -> None:
    service = IndexBackend(tmp_path, schema_of(tmp_path))
    async with client_of(service) as client:
        described = await described_by(client)
        await put_teas(client)
        for name, path in (
            ("health", "/healthz"),
            ("ready", "/readyz"),
            ("collections", "/collections"),
        ):
            described.check_answer(name, await client.get(path))
        for name, method, path, body in ANSWERS:
            url = f"/collections/teas{path}"
            answer = await client.request(method, url, content=body.encode())
            assert answer.status_code == 200, answer.text
            described.check_answer(name, answer)
        service.forget_before(41)
        for name, method, path, body, details in PROBLEMS:
            url = f"/collections/teas{path}"
            answer = await client.request(method, url, content=body.encode())
            described.check_answer(name, answer)
            assert set(answer.json()["error"]) == {"code", "message", *details}, answer.text
        service.write_results.append(ApiError("busy", "not now"))
        refused = await client.put("/collections/teas/documents/1", json={})
        described.check_answer("put_document_of", refused)


async def test_each_line_of_a_bulk_is_described(tmp_path: Path) -> None:
    lines = ('{"id": "1", "title": "tea"}', '{"delete": "2"}', '{"id": "3", "title": 7}', "{")

    service = IndexBackend(tmp_path)
    async with client_of(service, HttpSettings(timeout_s=0.01)) as client:
        described = await described_by(client)
        service.holds_outputs = True
        for query in ("wait=visible", "key=a"):
            content = "\n".join(lines).encode()
            answer = await client.post(f"/documents:bulk?{query}", content=content)
            results = [json.loads(line) for line in answer.text.splitlines()]
            assert len(results) == 4 + (query == "wait=visible")
            for line in results:
                described.check_item("bulk", line)
        (asked,) = described.operations["bulk"]["requestBody"]["content"].values()
        for sent in lines[:2]:
            described.check(asked["x-itemSchema"], json.loads(sent))


async def test_each_event_of_a_stream_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def truncated_spans(since: int) -> AsyncIterator[Span]:
        if since < 41:
            raise RetentionExceeded.of("the journal", 41)
        yield Span(since, since, [])

    service = IndexBackend(tmp_path)
    async with served(service, HttpSettings(heartbeat_s=0.02)) as client:
        described = await described_by(client)
        await client.put("/watches/w", json={"q": "tea"})
        await client.put("/documents/1", json={"title": "tea"})
        await client.delete("/documents/1")
        for name, path in (("changes", "/changes"), ("watch_events", "/watches/w/events")):
            parameters = {each["name"] for each in described.operations[name]["parameters"]}
            assert {"from", "Last-Event-ID"} <= parameters
            for source, names in ((None, ["", "", "time"]), (truncated_spans, ["error"])):
                with monkeypatch.context() as patched:
                    if source is not None:
                        patched.setattr(service, "spans", source)
                    asked = client.stream("GET", path, params={"from": BEGINNING})
                    async with asked as answer:
                        stream = events(answer)
                        found = [await anext(stream)]
                        while found[-1][0] != names[-1]:
                            found.append(await anext(stream))
                for event in found:
                    described.check_event(name, event)
                assert [name for name, *_ in found][-len(names) :] == names


async def test_responses_of_any_flow_are_described() -> None:
    backend = FlowBackend(counting(), {"counts": [KeyValueView(0)]}, dead_letters=True)
    transport = httpx.ASGITransport(flow_application(backend, ["counts"]))

    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        described = await described_by(client)
        for record in ("tea", {"no": "text"}, "tea"):
            described.check_answer("record", await client.post("/records", json=record))
        for name, path in (
            *(("value", "/views/counts/tea"), ("value", "/views/counts/none")),
            ("values", "/views/counts"),
        ):
            described.check_answer(name, await client.get(path))
        async with aclosing(changes(backend, 0, event_encoder(["counts"]), 60)) as stream:
            received = (await anext(stream)).decode()
        kinds = set()
        for text in received.split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) for line in text.splitlines())
            event = "", fields["id"], json.loads(fields["data"])
            described.check_event("changes", event)
            kinds |= {kind for output in event[2]["outputs"] for kind in output}
        assert kinds == {"sink", "value", "dead_letter"}
