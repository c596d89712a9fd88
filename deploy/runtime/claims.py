"""Claims: what a process opens, or locks, before it can begin."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

from driftline.deploy.runtime.config import ProcessConfig
from driftline.engine.durable import Lock, reported
from driftline.engine.errors import InUse, Unavailable
from driftline.engine.events import Trouble, about, log

ANOTHER_STATE = ": mend that, or give another --state"
"""What helps if the operating system refuses something in a state directory."""

CLAIM_S = 10.0
"""How long the processes of a killed run may take to end."""

SOON_S = 1.0
"""Who waits for longer is told so."""

OPEN_AGAIN_S = 1.0
"""Seconds between two tries of a process that cannot open a directory now."""

_Opened = TypeVar("_Opened")


def claim(path: Path, by: str = "run") -> Lock:
    """Lock a file until it is released or this process ends; wait for a process that is ending.

    `by`: what else may hold it. Raises InUse if another one does, Unavailable.
    """
    taken = (
        f"{path.parent} is in use by another {by}: wait for its end, or give another "
        "--state directory"
    )
    with reported("state directory", path.parent, ANOTHER_STATE):
        path.parent.mkdir(parents=True, exist_ok=True)
        return lock_in_time(path, taken)


def lock_in_time(path: Path, taken: str) -> Lock:
    """Lock a file; wait for a process that is ending, and say so if it takes long.

    Raises InUse with the text `taken`, OSError.
    """
    soon_s = min(SOON_S, CLAIM_S)
    with suppress(InUse):
        return Lock(path, taken, wait_s=soon_s)
    text = "%s is in use: waiting for up to %g s, as the processes of a killed run end by then"
    told = about("waiting-for-others", directory=str(path.parent), within_s=CLAIM_S)
    log.warning(text, path.parent, CLAIM_S, extra=told)
    return Lock(path, taken, wait_s=CLAIM_S - soon_s)


def wait_for_others(state: Path) -> None:
    """Wait until all processes of an earlier run have ended. Raises InUse, Unavailable."""
    members = [*state.glob("node-*.lock"), *state.glob("front-*.lock")]
    for file in [state / "master.lock", *sorted(members)]:
        if file.exists():
            claim(file).release()


def opened(config: ProcessConfig, what: Callable[[], _Opened]) -> _Opened:
    """What is opened; a process that is started again waits for what cannot be reached now."""
    trouble = Trouble("cannot-open")
    while True:
        try:
            found = what()
        except Unavailable as error:
            if not config.again:
                raise
            text = f"{config.name} cannot start: {error}; trying again"
            trouble.failed(monotonic(), text, name=config.name)
            sleep(OPEN_AGAIN_S)
        else:
            trouble.over(monotonic(), f"{config.name} can start", name=config.name)
            return found
