"""Profiles of hypothesis, the tiers of the tests, and fixtures that several folders use.

Every run tries the same examples, also on a slow machine.
"""

import asyncio
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Sequence
from compileall import compile_dir
from inspect import iscoroutinefunction
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.zookeepers import empty_tree, zookeeper

__all__ = ["empty_tree", "zookeeper"]

for profile, examples in (("driftline", 60), ("fast", 20)):
    settings.register_profile(
        profile,
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=examples,
        # Tests that share a fixture's directory between examples empty it for each.
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
settings.load_profile("driftline")

SLOW = (
    "api/test_run_in_processes.py",
    "bench",
    "careless",
    "connectors/test_live_sources.py",
    "connectors/test_sinks_by_address.py",
    "deploy/cluster",
    "deploy/commands",
    "deploy/local",
    "deploy/node/test_backpressure.py",
    "deploy/node/test_lost_slow_and_stale.py",
    "deploy/runtime",
    "deploy/test_",
    "examples",
    "index/client",
    "index/commands",
    "index/http",
    "index/postings/test_merging.py",
    "index/searcher/test_searcher.py",
    "index/truth",
    "mutations",
    "pipeline",
    "serve/gateway",
    "serve/hosting",
    "serve/http",
    "serve/running",
    "simulation/test_simulation.py",
    "simulation/test_liveness.py",
    "soak",
    "test_docs.py",
    "test_packaging.py",
    "test_readme.py",
    "typing",
)
"""Tests that start processes or servers, or draw many cases: `make check` leaves them out."""

TESTS = Path(__file__).resolve().parent
LONGEST = [
    TESTS / name
    for name in (
        "pipeline",
        "simulation/test_simulation.py",
        "simulation/test_liveness.py",
        "mutations/test_mutations.py",
        "nexmark/test_nexmark.py",
    )
]
"""Files, and the folder of Spark's tests, that workers run first, each of them as a whole."""

PACKAGES = TESTS.parent / "driftline"

MEMORY = Path("/dev/shm")
"""File system in memory."""

MEMORY_MIN_BYTES = 4 << 30

if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_MIN_BYTES:
    # On a disk, thousands of synced and soon removed files take a tenth of the time of all tests.
    os.environ.setdefault("TMPDIR", str(MEMORY))
    tempfile.tempdir = None


def pytest_configure(config: pytest.Config) -> None:
    """Compile the engine once if the environment forbids processes to keep bytecode.

    Tests start thousands of processes. Each would compile it again, for half of its CPU time. Flows
    that tests write are not cached: two versions may have the same size and modification time.
    """
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        for package in (path for path in PACKAGES.iterdir() if path.is_dir()):
            compile_dir(package, quiet=1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the bytecode of tests, too: rewriting their assertions takes ten seconds."""
    forbidden, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = forbidden


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = tuple(f"{TESTS / name}" for name in SLOW)
    for item in items:
        if str(item.path).startswith(slow):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("soak"):  # it sets its own duration
            item.add_marker(pytest.mark.timeout(0))
    if hasattr(config, "workerinput"):
        items[:] = _dealt(items, config.workerinput["workercount"])


def pytest_collection_finish() -> None:
    """Keep garbage collections from traversing all tests: they take 3 % of the time."""
    gc.collect()
    gc.freeze()


def _dealt(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Deal files to workers so that each begins with slow tests, and steals quick ones last.

    The list is divided into parts of equal duration; a worker that finishes early steals from the
    end of another's part. The longest files come first. All tests of Spark are dealt to one worker,
    so that only this one starts a session of Spark.
    """
    files = [list(tests) for _, tests in groupby(sorted(items, key=_rank), _unit)]
    slow = [tests for tests in files if tests[0].get_closest_marker("slow")]
    quick = [tests for tests in files if not tests[0].get_closest_marker("slow")]
    hands = [[*slow[i::workers], *quick[i::workers]] for i in range(workers)]
    return [item for hand in hands for tests in hand for item in tests]


def _unit(item: pytest.Item) -> Path:
    """Return the file of a test, or its folder if that is one of `LONGEST`."""
    return item.path.parent if item.path.parent in LONGEST else item.path


def _rank(item: pytest.Item) -> int:
    unit = _unit(item)
    return LONGEST.index(unit) if unit in LONGEST else len(LONGEST)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in its own event loop."""
    if not iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
