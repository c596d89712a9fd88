"""Restoring: puts a loaded snapshot into a new assembly, in as many turns as that takes.

Between turns the node says Hello, and hears of a newer incarnation or of the end of the run.

Takes: the result of the job that loads. Gives: the assembly, or a message to the master if the
snapshot cannot be used; log lines: one when the node is ready, and one every few seconds while that
takes long. Invariant: the assembly is given only when its whole state is restored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from driftline.barrier.barrier import Barrier
from driftline.deploy.node.assembly import Assembly
from driftline.deploy.node.components import Components
from driftline.deploy.node.pace import Pace
from driftline.engine.errors import DriftlineError, MalformedMessage, SnapshotDamaged, Unavailable
from driftline.engine.events import about, log
from driftline.engine.snapshots.jobs import Loaded, LoadSnapshot
from driftline.engine.wire.messages import Failed, Message, Unloadable

TOLD_EVERY_S = 5.0
"""How often a long load is logged, in seconds."""

LONG_S = 1.0
"""A load that has taken so long is logged at its end; the lines of others are for debugging."""


class Restoring:
    """The restore of one incarnation.

    `load`: the job; `start`: the time of the snapshot; `same_code`: whether the code that runs now
    has taken it; `now`: seconds, monotonic.
    """

    def __init__(
        self, components: Components, load: LoadSnapshot, start: int, same_code: bool, now: float
    ) -> None:
        self.load = load
        self.start = start
        self._same_code = same_code
        self.load_again = False
        """Whether the job failed for the moment, and has to be repeated."""
        self.assembly: Assembly | None = None
        """The assembly, once its whole state is restored."""
        self._began, self._log_at = now, now + TOLD_EVERY_S
        self._components = components
        self._steps: Iterator[Assembly | None] = iter(())
        self.under_way = False
        """Whether there is more to restore."""
        self.bytes = self.restored_bytes = 0
        """The size of the snapshot's part of this node, as it was read; and of what is restored."""

    def take(self, result: object) -> None:
        """The job is done; `result` is an exception if it failed."""
        self._steps = self._all_steps(result)
        self.under_way = True

    def work(self, pace: Pace, incarnation: int) -> Message | None:
        """Restore for one turn. Returns a message to the master if the snapshot cannot be used."""
        try:
            for assembly in self._steps:
                self.assembly = assembly
                if pace.step():
                    return None
        except (SnapshotDamaged, MalformedMessage) as error:
            self.under_way = False
            return Unloadable(incarnation, self.load.number, str(error))
        except Unavailable:  # the driver tells of it
            self.load_again = True
        except DriftlineError as error:
            self.under_way = False
            return Failed(incarnation, type(error).__name__, str(error))
        self.under_way = False
        return None

    def _all_steps(self, result: object) -> Iterator[Assembly | None]:
        if isinstance(result, Exception):
            raise result
        assert isinstance(result, Loaded)
        assembly = self._components.assembly(
            self.start, result.number, result.meta, self._same_code
        )
        self.bytes, self.restored_bytes = sum(map(len, result.segments)), 0
        for _ in assembly.load(self._counted(result.segments), self.start):
            yield None
        yield assembly

    def _counted(self, segments: Sequence[bytes]) -> Iterator[bytes]:
        for segment in segments:
            yield segment
            self.restored_bytes += len(segment)

    @property
    def percent(self) -> int:
        """How much of what was read is restored."""
        return 100 * self.restored_bytes // self.bytes if self.bytes else 0

    # Log lines.

    def log_progress(self, name: str, now: float) -> None:
        """Log why node `name` is not ready yet, from time to time."""
        if now < self._log_at or not self._began:
            return
        self._log_at = now + TOLD_EVERY_S
        if self.assembly is not None:
            doing = "it waits for the consumer"
        elif self.under_way:
            doing = f"{self.percent} % of {self.bytes / 1e6:.1f} MB are restored"
        else:
            doing = "it waits for the disk"
        took = now - self._began
        fields = about("loading", name=name, percent=self.percent, seconds=took)
        log.info("%s has been loading for %.0f s: %s", name, took, doing, extra=fields)

    def log_end(self, name: str, now: float, keys: int, barrier: Barrier) -> None:
        """Log that node `name` is ready, with the states of `keys` keys."""
        took = now - self._began
        fields = about(
            "loaded", name=name, snapshot=self.load.number, bytes=self.bytes, keys=keys,
            seconds=took, t_last=barrier.t_last,
        )  # fmt: skip
        log.log(
            logging.INFO if took >= LONG_S else logging.DEBUG,
            "%s has loaded %.1f MB, %d keys, in %.1f s; the consumer has %s",
            *(name, self.bytes / 1e6, keys, took, barrier.stored_to),
            extra=fields,
        )
