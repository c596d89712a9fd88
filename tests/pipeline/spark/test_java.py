"""Without a suitable Java, the error says what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.engine.errors import Unavailable
from driftline.pipeline.spark.java import find_java


def test_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
