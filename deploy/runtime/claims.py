"""Locks and resources that a process acquires before it runs its role."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

from driftline.deploy.runtime.config import ProcessConfig
from driftline.engine.durable import Lock, translate_os_errors
from driftline.engine.errors import InUse, Unavailable
from driftline.engine.events import FailureLog, event_fields, log

STATE_DIRECTORY_HINT = ": fix that, or give another directory"
"""Advice at the end of an error about an unusable state directory."""

CLAIM_S = 10.0
"""Longest wait in seconds for the processes of a killed run to exit."""

REOPEN_PAUSE_S = 1.0
"""Pause before a process retries to open a directory, in seconds."""

_Opened = TypeVar("_Opened")


def claim(path: Path, owner: str = "run") -> Lock:
    """Lock a file until the lock is released or this process exits; wait for an exiting owner.

    `owner`: what may hold the lock, for the error: run or agent. Raises InUse if a process still
    holds it about `CLAIM_S` later; Unavailable if the directory cannot be used.
    """
    in_use_error = (
        f"{path.parent} is in use by another {owner}: wait until it ends, or use another "
        "directory for state and outputs"
    )
    with translate_os_errors("state directory", path.parent, STATE_DIRECTORY_HINT):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return Lock(path, in_use_error, wait_s=CLAIM_S / 10)
        except InUse:
            fields = event_fields("state-in-use", path=str(path.parent))
            log.info(
                "%s is in use: waiting up to %.0f s until the other process exits",
                path.parent,
                CLAIM_S,
                extra=fields,
            )
        return Lock(path, in_use_error, wait_s=CLAIM_S)


def wait_for_others(state: Path) -> None:
    """Wait until all processes of an earlier run have exited. Raises InUse, Unavailable."""
    members = [*state.glob("node-*.lock"), *state.glob("front-*.lock")]
    for file in [state / "master.lock", *sorted(members)]:
        if file.exists():
            claim(file).release()


def open_with_retry(config: ProcessConfig, open_resource: Callable[[], _Opened]) -> _Opened:
    """Return the result of `open_resource`.

    If it raises Unavailable, a restarted process retries; any other process raises the error.
    """
    failures = FailureLog("cannot-open")
    while True:
        try:
            opened = open_resource()
        except Unavailable as error:
            if not config.is_restart:
                raise
            text = f"{config.name} cannot start: {error}; retrying"
            failures.record_failure(monotonic(), text, name=config.name)
            sleep(REOPEN_PAUSE_S)
        else:
            failures.record_success(monotonic(), f"{config.name} can start", name=config.name)
            return opened
