"""Requests drawn from the description: no answer is one that it does not have, and none is 5xx."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from driftline.serve.http.operations import HttpSettings
from tests.index.http.service import Service, in_a_thread
from tests.index.http.test_reading import schema_of

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "8"))
"""Of each operation."""

"""Not asked for: a pattern cannot say which tokens are given, nor a type what a query is."""

STREAMS = ("/changes", "/events")
"""The ends of paths that are streams: they have no end."""


def test_every_response_conforms_to_the_openapi_description(tmp_path: Path) -> None:
    schema = schema_of(tmp_path)
    with in_a_thread(lambda: Service(tmp_path, schema), HttpSettings(timeout_s=1)) as url:
        for collection in ("teas", "empty"):
            put = httpx.put(f"{url}/collections/{collection}/documents/1", json={"title": "tea"})
            assert put.status_code == 200
        described = httpx.get(f"{url}/openapi.json").json()
        schemathesis.serializer("application/x-ndjson")(lambda _, value: str(value).encode())
        tried = 0
        for result in schemathesis.openapi.from_dict(described).get_all_operations():
            assert isinstance(result, Ok)
            operation = result.ok()
            if operation.path.endswith(STREAMS):
                continue

            def try_one(case: Any) -> None:
                case.call_and_validate(base_url=url, excluded_checks=[positive_data_acceptance])

            run = given(case=operation.as_strategy())(try_one)
            quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
            settings(
                max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=quiet
            )(run)()
            tried += 1
        assert tried > 20
