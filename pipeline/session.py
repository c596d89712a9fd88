"""Spark sessions with defaults for one machine, and the search for Java.

The JVM writes its messages to a file instead of the terminal; if the start fails, the error shows
the end of that file.
Without PySpark or a suitable Java, the error says what to install. A terminal shows a progress bar
for each active stage.

Spark starts this module as the daemon that forks its Python workers, ``python -m MODULE``.
PySpark's own daemon searches the working directory for modules first, so a file `json.py` there
would break each task.
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
from threading import Event, Thread
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, TaskID

from driftline.engine.errors import Unavailable
from driftline.engine.ui.consoles import bars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


JAVA = (17, 21)
"""The versions of Java that Spark 4 supports, the oldest first."""

FRUGAL_JVM_OPTIONS = "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"
"""JVM options for sessions that work in Python: the fast compiler (C1) only, and one thread for
garbage collection, so the JVM leaves the cores to Python. They halve the JVM's CPU time in a job of
half a minute."""

PROGRESS_BAR_UPDATE_S = 0.3
"""Seconds between two updates of the progress bars."""

DEFAULTS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.log.level": "ERROR",
    "spark.sql.adaptive.enabled": "false",  # we choose the partitions (ranges of key groups)
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "16",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

FRUGAL_CONF = {"spark.driver.extraJavaOptions": " ".join(FRUGAL_JVM_OPTIONS)}
"""Settings for sessions that work in Python, where the JVM only moves rows."""

PATHS_VARIABLE = "DRIFTLINE_SPARK_PATHS"
"""The environment variable with the folders that workers append to their module search path."""

LOG_SHOWN = 2000
"""Maximum number of characters of the JVM's log that an error shows."""


def find_java(program: str) -> str:
    """Return the path of a suitable Java. Raises Unavailable if there is none.

    `program`: the program that needs Java, for the error.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    wanted = (
        f"{program} needs Java {JAVA[0]} or newer (for example the package openjdk-17-jre-headless)"
    )
    try:
        if java is None:
            raise FileNotFoundError("there is no java on the PATH, and JAVA_HOME is not set")
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{wanted}: {error}") from None
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if version is None or int(version[1]) < JAVA[0]:
        problem = f"is version {version[1]}" if version else "does not report its version"
        raise Unavailable(f"{wanted}: {java} {problem}. Set JAVA_HOME to a newer one")
    return java


@contextmanager
def session(
    name: str, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Start a Spark session, and stop it at the end of the context.

    `name`: of the application. `master`: Spark's master; None: all cores of this machine. `conf`:
    further settings.

    Raises Unavailable without PySpark or a suitable Java, if Spark does not start, or if this
    process already has a session: Spark would change and stop that session.
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
            "spark.python.daemon.module": __name__,
            "spark.executorEnv.PYTHONSAFEPATH": "1",
            f"spark.executorEnv.{PATHS_VARIABLE}": os.pathsep.join(map(os.path.abspath, sys.path)),
            "spark.sql.warehouse.dir": str(Path(scratch) / "warehouse"),
            **(conf or {}),
        }
        builder = SparkSession.builder.appName(name).master(master or "local[*]")
        for key, value in settings.items():
            builder = builder.config(key, value)
        log = Path(scratch) / "jvm.log"
        try:
            with _redirect_stderr(log):
                spark = builder.getOrCreate()
        except Exception as error:
            log_end = log.read_text(errors="replace")[-LOG_SHOWN:] if log.exists() else ""
            raise Unavailable(f"Spark does not start: {error}\n{log_end}") from None
        try:
            yield spark
        finally:
            spark.stop()
            _end_jvm()


def escape_glob(path: Path) -> str:
    """Escape a path for Spark's readers, which treat brackets and stars as patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path))


def check_spark() -> None:
    """Raise Unavailable if PySpark, a package that it needs, or a suitable Java is missing."""
    for package in ("pyspark", "pyarrow", "google.protobuf"):
        try:
            missing = find_spec(package) is None
        except ModuleNotFoundError:  # the parent package google is missing
            missing = True
        if missing:
            raise Unavailable(f"Spark needs {package}: pip install 'driftline[spark]'")
    find_java("Spark")


@contextmanager
def _redirect_stderr(path: Path) -> Iterator[None]:
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


@contextmanager
def show_progress(spark: SparkSession, console: Console, name: str) -> Iterator[None]:
    """Show the progress of Spark while the body runs, if the console is a terminal."""
    if not console.is_terminal:
        yield
        return
    shown_bars = bars(console, "tasks")
    stop = Event()
    watcher = Thread(target=_watch, args=(spark, shown_bars, name, stop), daemon=True)
    with shown_bars:
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()


def _watch(spark: SparkSession, shown_bars: Progress, name: str, stop: Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    bars_by_stage: dict[int, TaskID] = {}
    while not stop.wait(PROGRESS_BAR_UPDATE_S):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is None:
                continue
            if stage not in bars_by_stage:
                title = f"{name}, stage {stage}"
                bars_by_stage[stage] = shown_bars.add_task(title, total=info.numTasks)
            shown_bars.update(bars_by_stage[stage], completed=info.numCompletedTasks)


def _run_daemon() -> None:
    """Run PySpark's daemon with the driver's module search path appended to its own.

    Spark puts a zip archive of PySpark's sources first in the path. The daemon moves it to the end
    of its own path, so that an installed PySpark, whose bytecode is cached, comes first. This saves
    a second for the daemon and another for each worker.
    """
    sys.path.sort(key=lambda path: path.endswith(".zip") and "spark" in path)
    sys.path += [
        path for path in os.environ[PATHS_VARIABLE].split(os.pathsep) if path not in sys.path
    ]
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    _run_daemon()
