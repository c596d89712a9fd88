"""Adjustable wall clock for all processes whose PYTHONPATH contains this folder.

The environment variable CLOCK names a file with the offset in seconds.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_time_ns = time.time_ns


def wrong_time_ns() -> int:
    try:
        wrong_by_s = float(Path(os.environ["CLOCK"]).read_text())
    except (KeyError, OSError):
        wrong_by_s = 0.0
    return _time_ns() + round(1e9 * wrong_by_s)


time.time_ns = wrong_time_ns
time.time = lambda: wrong_time_ns() / 1e9
