"""One profile for hypothesis: every run tries the same examples, on a slow machine too.

Fixtures that tests of several folders use.
"""

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
