"""In-process service that the tests of clients share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.index.client.serving import FaultyProxy, InProcessService, in_process


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    with in_process(tmp_path_factory.mktemp("service")) as found:
        yield found


@pytest.fixture
def proxy(service: InProcessService) -> Iterator[FaultyProxy]:
    with FaultyProxy(service.url) as found:
        yield found
