"""Requests drawn from the OpenAPI description: all responses conform to it, and none is 5xx."""

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
from tests.index.http.service import IndexBackend, serve_in_thread
from tests.index.http.test_reading import schema_of

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "8"))
"""Number of requests per operation."""

STREAMS = ("/changes", "/events")
"""Suffixes of the paths of streams, which are skipped because they never end."""


def test_every_response_conforms_to_the_openapi_description(tmp_path: Path) -> None:
    schema = schema_of(tmp_path)
    with serve_in_thread(lambda: IndexBackend(tmp_path, schema), HttpSettings(timeout_s=1)) as url:
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

            # The schema cannot express which tokens and queries are valid.
            def try_one(case: Any) -> None:
                case.call_and_validate(base_url=url, excluded_checks=[positive_data_acceptance])

            run = given(case=operation.as_strategy())(try_one)
            quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
            settings(
                max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=quiet
            )(run)()
            tried += 1
        assert tried > 20
