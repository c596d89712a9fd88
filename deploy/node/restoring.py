"""Restoring: a snapshot on its way into the parts of a node, in a turn as much as has time.

Between the steps the node says Hello, and hears of a newer incarnation or of the end of the run.
"""

from __future__ import annotations

from collections.abc import Iterator

from driftline.deploy.node.parts import Parts
from driftline.deploy.work.assembly import Assembly
from driftline.deploy.work.pace import Pace
from driftline.engine.errors import DriftlineError, MalformedMessage, SnapshotDamaged, Unavailable
from driftline.engine.snapshots.jobs import Loaded, LoadSnapshot
from driftline.engine.wire.messages import Failed, Message, Unloadable
from driftline.engine.wire.party import log


class Restoring:
    """The beginning of one incarnation: what is loaded; it counts from time `start`."""

    def __init__(self, parts: Parts, load: LoadSnapshot, start: int) -> None:
        self.load = load
        self.start = start
        self.again = False
        """Whether the job has to be done again."""
        self.assembly: Assembly | None = None
        """The parts, once everything is in them."""
        self._parts = parts
        self._steps: Iterator[Assembly | None] = iter(())
        self.under_way = False
        """Whether there is more to do."""

    def take(self, result: object) -> None:
        """The disk has answered."""
        self._steps = self._all_steps(result)
        self.under_way = True

    def work(self, pace: Pace, incarnation: int) -> Message | None:
        """Do a turn's work. Returns what the master has to hear if it cannot be done."""
        try:
            for made in self._steps:
                self.assembly = made
                if pace.step():
                    return None
        except (SnapshotDamaged, MalformedMessage) as error:
            self.under_way = False
            return Unloadable(incarnation, self.load.number, str(error))
        except Unavailable as error:
            log.warning("%s; trying again", error)
            self.again = True
        except DriftlineError as error:
            self.under_way = False
            return Failed(incarnation, type(error).__name__, str(error))
        self.under_way = False
        return None

    def _all_steps(self, result: object) -> Iterator[Assembly | None]:
        if isinstance(result, Exception):
            raise result
        assert isinstance(result, Loaded)
        made = self._parts.assembly(self.start, result.number, result.meta)
        for _ in made.load(result.segments, self.start):
            yield None
        yield made
