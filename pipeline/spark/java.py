"""Java: where it is, and whether it is new enough for Spark and what comes with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from driftline.engine.errors import Unavailable

JAVA = (17, 21)
"""The versions of Java that Spark 4 supports, the oldest first."""

FRUGAL = "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"
"""For JVMs that do little themselves: no threads that compile and collect compete with Python for
the cores. Halves the CPU time of Spark's JVM in a job of half a minute."""


def find_java(who: str) -> str:
    """The path of Java. `who` needs it, for the error. Raises Unavailable."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    wanted = (
        f"{who} needs Java {JAVA[0]} or newer (for example the package openjdk-17-jre-headless)"
    )
    try:
        if java is None:
            raise FileNotFoundError("there is no java on the PATH, and JAVA_HOME is not set")
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{wanted}: {error}") from None
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if version is None or int(version[1]) < JAVA[0]:
        kind = f"version {version[1]}" if version else "no Java that tells its version"
        raise Unavailable(f"{wanted}: {java} is {kind}. Set JAVA_HOME to another one")
    return java
