"""One Spark session for all tests of a process: to start one takes seconds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    with session("tests", "local[2]") as found:
        yield found
