"""One service for all tests of its clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.index.client.serving import Proxy, Serving
from tests.index.truth.service import served


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    found = Serving(tmp_path_factory.mktemp("service"))
    with served(found):
        yield found


@pytest.fixture
def proxy(service: Serving) -> Iterator[Proxy]:
    with Proxy(service.url) as found:
        yield found
