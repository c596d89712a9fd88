"""Spark sessions that start quietly, with defaults that suit one machine.

What the JVM has to say goes to a file, whose end is told when Spark does not start. Without
pyspark, or without a Java that it can use, `session` says what to install.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.engine.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = (17, 21)
"""The versions of Java that Spark 4 is made for, the oldest first."""

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

FRUGAL_JVM = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For sessions that do their work in Python: the JVM moves rows only, and what it spends on its own
speed (threads that compile and collect) it takes from Python's cores. Halves its CPU time in a job
of half a minute."""

LOG_SHOWN = 2000
"""Characters of the JVM's log that an error shows."""


@contextmanager
def session(
    name: str, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A Spark session; stopped in the end. `master` defaults to all cores of this machine.

    Raises Unavailable if there is no PySpark, no fitting Java, Spark does not start, or a session
    is running in this process already: it would get our settings, and would be stopped with ours.
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
            told = log.read_text(errors="replace")[-LOG_SHOWN:] if log.exists() else ""
            raise Unavailable(f"Spark does not start: {error}\n{told}") from None
        try:
            yield spark
        finally:
            spark.stop()
            _end_jvm()


def literal(path: Path) -> str:
    """A path as Spark's readers want it, who take brackets and stars for patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path))


def check_spark() -> None:
    """Raises Unavailable if there is no PySpark, nothing that it needs, or no fitting Java."""
    for package in ("pyspark", "pyarrow", "google.protobuf"):
        try:
            missing = find_spec(package) is None
        except ModuleNotFoundError:  # google
            missing = True
        if missing:
            raise Unavailable(f"Spark needs {package}: pip install 'driftline[spark]'")
    check_java()


def check_java() -> None:
    """Raises Unavailable if there is no Java that Spark can use."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    wanted = (
        f"Spark needs Java {JAVA[0]} or newer (for example the package openjdk-17-jre-headless)"
    )
    try:
        if java is None:
            raise FileNotFoundError("there is no java on the PATH, and JAVA_HOME is not set")
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{wanted}: {error}") from None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    if found is None or int(found[1]) < JAVA[0]:
        what = f"version {found[1]}" if found else "no Java that tells its version"
        raise Unavailable(f"{wanted}: {java} is {what}. Set JAVA_HOME to another one")


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Let processes that are started meanwhile write their standard error to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


def _end_jvm() -> None:
    """End the JVM with its session, so that the next one may have other settings."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        SparkContext._gateway = None
        SparkContext._jvm = None
