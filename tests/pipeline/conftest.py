"""One Spark session for all tests of a process, as its start takes seconds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from driftline.pipeline.session import FRUGAL_JVM_OPTIONS, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {
    # short jobs are not worth optimising
    "spark.driver.extraJavaOptions": " ".join(FRUGAL_JVM_OPTIONS),
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    with session("tests", "local[2]", QUICK) as found:
        yield found
