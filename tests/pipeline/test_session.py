"""Without a session or a suitable Java, a one-sentence error gives the reason."""

from __future__ import annotations

import os
import subprocess
import sys
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


def test_working_directory_does_not_shadow_modules_of_workers(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise ImportError('this is not the json of Python')\n")
    (tmp_path / "helper.py").write_text("def twice(record):\n    return 2 * record['n']\n")
    (tmp_path / "flow.py").write_text(
        "from driftline import Flow\nimport helper\n"
        "flow = Flow('f')\nflow.source('in').map(helper.twice).sink('out')\n"
    )
    (tmp_path / "in.jsonl").write_text('{"n": 4}\n')
    command = "from driftline import main; main()"
    arguments = "spark run flow.py --input in.jsonl --output out --partitions 1 --master local[1]"
    done = subprocess.run(
        [sys.executable, "-P", "-c", command, *arguments.split()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    [file] = (tmp_path / "out").glob("*.jsonl")
    assert '"value": 8' in file.read_text()


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
