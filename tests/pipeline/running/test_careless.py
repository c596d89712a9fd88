"""Functions that are not careful: Spark gives what the reference gives."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from driftline.deploy.simulation.scenarios.flows import records
from driftline.engine.flow.loading import load_flow
from driftline.engine.reference import run_reference
from tests.careless.flows import ALL
from tests.pipeline.running.test_runner import as_lines, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HASHED = "sets"
"""Its order is that of hashes, which a command fixes, and this process of the tests does not."""


@pytest.mark.parametrize("name", [name for name in ALL if name != HASHED])
def test_spark_gives_what_the_reference_gives(spark: SparkSession, name: str) -> None:
    flow = load_flow(ALL[name])
    found = [records(Random(7), 60, 0)]
    wanted = as_lines(flow, list(run_reference(flow, found, dead_letters=True)))
    assert on_spark(spark, flow, found, 3) == wanted
