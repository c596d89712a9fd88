"""One service for all tests of its clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.index.client.serving import Proxy, Serving, served


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with served(tmp_path_factory.mktemp("service")) as found:
        yield found


@pytest.fixture
def proxy(service: Serving) -> Iterator[Proxy]:
    with Proxy(service.url) as found:
        yield found
