"""Without a session, or a suitable Java, the error says in one sentence why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from driftline.engine.errors import Unavailable
from driftline.pipeline.session import find_java, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_there_is_one_session_in_a_process(spark: SparkSession) -> None:
    with pytest.raises(Unavailable, match="running in this process already"), session("another"):
        pass
    assert spark.range(3).count() == 3


def test_without_java_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Unavailable, match="Spark needs Java 17 or newer"):
        find_java("Spark")


def test_java_of_another_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Unavailable, match=r"is version 8. Set JAVA_HOME"):
        find_java("Spark")
