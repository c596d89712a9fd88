"""Locked files: one process holds a lock until it releases it or ends, in whatever way.

The kernel releases the locks of a process that ends. A process started by `exec` does not inherit
them, and a copy that a user function forks gives them up (`filelock`). The file itself stays, and
is empty: only the lock counts, so every version of Driftline respects it.
"""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from driftline.engine.errors import InUse

ASK_AGAIN_S = 0.05
"""Seconds between attempts to take a lock that is held."""

_held: set[Lock] = set()
"""All locks that this process holds: one without a variable must not be collected and released."""


class Lock:
    """A file that is locked from now on, until `release` or the end of the process."""

    def __init__(self, path: Path, taken: str, *, wait_s: float = 0.0) -> None:
        """Lock the file at `path`; wait for another holder `wait_s` seconds at most.

        Raises InUse with the text `taken` if the other one keeps it for so long, OSError.
        """
        self._lock = FileLock(
            path,
            mode=0o644,
            thread_local=False,  # another thread may release it
            fallback_to_soft=False,  # a soft lock would outlive a kill -9
            poll_interval=ASK_AGAIN_S,
        )
        try:
            self._lock.acquire(timeout=wait_s)
        except Timeout:
            raise InUse(taken) from None
        _held.add(self)

    def release(self) -> None:
        """Release the lock. May be called again."""
        self._lock.release()
        _held.discard(self)
