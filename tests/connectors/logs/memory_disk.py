"""Directories that cost no fsync: for tests of what is written, not of what a disk does."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def memory_disk() -> Iterator[Path]:
    """A temporary directory, in memory where there is such a thing."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)
