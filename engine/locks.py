"""Locked files: what one process has for itself until it lets go, or is gone, however it went.

The kernel lets go of a lock with the process that holds it. What such a process has started by
`exec` does not inherit it, and a copy that a user function has forked gives it up (`filelock`). The
file itself stays, and is empty: what counts is the lock, so any version of Driftline respects it.
"""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from driftline.engine.errors import Unavailable

ASK_AGAIN_S = 0.05
"""How long somebody waits who finds a lock taken, until it tries again."""

_kept: set[Lock] = set()
"""What is held: nobody lets go by forgetting."""


class Lock:
    """A file that is locked from now on, until `release` or the end of the process."""

    def __init__(self, path: Path, taken: str, *, wait_s: float = 0.0) -> None:
        """Lock the file at `path`; wait for its holder `wait_s` seconds at most.

        Raises Unavailable with the text `taken` if it has another holder all the time, OSError.
        """
        self._lock = FileLock(
            path,
            mode=0o644,
            thread_local=False,  # who releases it may be another thread
            fallback_to_soft=False,  # a mere file would outlive a kill -9
            poll_interval=ASK_AGAIN_S,
        )
        try:
            self._lock.acquire(timeout=wait_s)
        except Timeout:
            raise Unavailable(taken) from None
        _kept.add(self)

    def release(self) -> None:
        """Let others have it. May be repeated."""
        self._lock.release()
        _kept.discard(self)
