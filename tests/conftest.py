"""One profile for hypothesis: every run tries the same examples, on a slow machine too.

Fixtures that tests of several folders use.
"""

import pytest
from hypothesis import HealthCheck, settings

from tests.zookeepers import zookeeper

__all__ = ["zookeeper"]

settings.register_profile(
    "driftline",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    # Those who share a fixture's directory between examples empty it for each.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("driftline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("soak"):  # it says for itself how long it takes
            item.add_marker(pytest.mark.timeout(0))
