"""Sessions say in one sentence why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from driftline.engine.errors import Unavailable
from driftline.pipeline.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_there_is_one_session_in_a_process(spark: SparkSession) -> None:
    with pytest.raises(Unavailable, match="running in this process already"), session("another"):
        pass
    assert spark.range(3).count() == 3
