"""One service for all tests of its clients, in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.index.client.serving import InProcess, Proxy, in_process


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("service")) as found:
        yield found


@pytest.fixture
def proxy(service: InProcess) -> Iterator[Proxy]:
    with Proxy(service.url) as found:
        yield found
