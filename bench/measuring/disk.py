"""The disk: what it takes here to make a little durable."""

import os
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile
from time import perf_counter

WRITES = 50
BYTES = 4096


def sync_ms(directory: Path | None = None) -> float:
    """Milliseconds that it takes to append 4 KiB to a file and wait for the disk: the median.

    `directory`: where; None: where the runs of the benchmark have their files.
    """
    with NamedTemporaryFile(dir=directory, prefix="driftline-bench-") as file:
        return median(_write_ms(file.fileno()) for _ in range(WRITES))


def _write_ms(file: int) -> float:
    start = perf_counter()
    os.write(file, b"x" * BYTES)
    os.fdatasync(file)
    return 1000 * (perf_counter() - start)
