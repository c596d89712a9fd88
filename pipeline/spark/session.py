"""Spark sessions that start quietly, with defaults for one machine.

The JVM writes its messages to a file; the error of a failed start shows the end of that file.
Without PySpark or a suitable Java, the error says what to install.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.engine.errors import Unavailable
from driftline.pipeline.spark.java import FRUGAL, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.log.level": "ERROR",
    "spark.sql.adaptive.enabled": "false",  # partitions are ranges of key groups: ours to choose
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "16",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

FRUGAL_JVM = {"spark.driver.extraJavaOptions": " ".join(FRUGAL)}
"""For sessions whose work is done in Python, where the JVM only moves rows."""

LOG_SHOWN = 2000
"""Characters of the JVM's log that an error shows."""


@contextmanager
def session(
    name: str, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A context manager that starts a Spark session, and stops it at the end.

    `name`: of the application. `master`: Spark's master; None: all cores of this machine. `conf`:
    further settings.

    Raises Unavailable without PySpark or a suitable Java, if Spark does not start, or if this
    process has a session already: that one would get these settings, and would be stopped, too.
    """
    check_spark()
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        raise Unavailable("a Spark session is running in this process already: use that one")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="driftline-spark-") as scratch:
        settings = {
            **DEFAULTS,
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": str(Path(scratch) / "warehouse"),
            **(conf or {}),
        }
        builder = SparkSession.builder.appName(name).master(master or "local[*]")
        for key, value in settings.items():
            builder = builder.config(key, value)
        log = Path(scratch) / "jvm.log"
        try:
            with _errors_to(log):
                spark = builder.getOrCreate()
        except Exception as error:
            log_end = log.read_text(errors="replace")[-LOG_SHOWN:] if log.exists() else ""
            raise Unavailable(f"Spark does not start: {error}\n{log_end}") from None
        try:
            yield spark
        finally:
            spark.stop()
            _end_jvm()


def literal(path: Path) -> str:
    """A path for Spark's readers, with brackets and stars escaped: they take them for patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path))


def check_spark() -> None:
    """Raises Unavailable if PySpark, a package that it needs, or a suitable Java is missing."""
    for package in ("pyspark", "pyarrow", "google.protobuf"):
        try:
            missing = find_spec(package) is None
        except ModuleNotFoundError:  # google
            missing = True
        if missing:
            raise Unavailable(f"Spark needs {package}: pip install 'driftline[spark]'")
    find_java("Spark")


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Redirect the standard error of this process, and of processes that it starts, to a file."""
    sys.stderr.flush()
    stderr = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(file)


def _end_jvm() -> None:
    """End the JVM, so that the next session can have other settings."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        SparkContext._gateway = None
        SparkContext._jvm = None
