"""Answers those who read the log lines of an agent, in a thread beside it.

`LogAnswers`. Takes: `AskLines` (watches of `driftline logs`), results of `ReadLines`. Gives:
`ReadLines`, `Lines`. Invariant: what waits for the disk is bounded; who gets no answer asks again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from driftline.deploy.cluster.agents.logbook import Logbook, Piece
from driftline.deploy.host.loop.runtime import Runtime
from driftline.deploy.host.sockets.transport import Network
from driftline.engine.events import about, log
from driftline.engine.wire.messages import AskLines, Lines, Message
from driftline.engine.wire.party import Job, Party
from driftline.engine.wire.senders import AGENT

JOBS_MAX = 100


@dataclass(frozen=True, slots=True)
class ReadLines(Job):
    """Job: read log lines for somebody. Result: Piece."""

    what: ClassVar[str] = "read its log lines"
    reader: str
    asked: AskLines


class LogAnswers(Party):
    """Hands out the lines of one agent."""

    def __init__(self) -> None:
        super().__init__(AGENT)
        self._under_way = 0

    def handle(self, sender: str, message: Message) -> None:
        if isinstance(message, AskLines) and message.count > 0 and self._under_way < JOBS_MAX:
            self._under_way += 1
            self.jobs.append(ReadLines(sender, message))

    def channel_lost(self, sender: str) -> None:
        """Do nothing: all its messages are control messages."""

    def done(self, job: Job, result: object) -> None:
        self._under_way -= 1
        self.note(job, result)
        if isinstance(job, ReadLines) and isinstance(result, Piece):
            asked = job.asked
            self.addresses[job.reader] = asked.address
            more = int(result.more)
            answer = Lines(asked.flow, asked.since, result.until, more, result.lines)
            self.send(job.reader, answer)


class Answering(threading.Thread):
    """Runs `LogAnswers`, from when it is made. Raises NotPermitted, Unavailable."""

    def __init__(self, book: Logbook, network: Network, sockets: Path) -> None:
        super().__init__(name="log lines", daemon=True)
        self._runtime = Runtime(transport=network.transport(sockets))
        self._leaving = False

        def carry_out(job: Job) -> object:
            assert isinstance(job, ReadLines)
            asked = job.asked
            return book.read(asked.flow, asked.since, asked.count)

        at = network.inbox(AGENT, str(sockets))
        try:
            self.address = self._runtime.add(LogAnswers(), at, carry_out)
        except BaseException:
            self._runtime.close(linger_ms=0)
            raise
        self.start()

    def run(self) -> None:
        """Answer until `end`. What goes wrong here ends nothing else."""
        try:
            more = False
            while not self._leaving:
                more = self._runtime.step(more)
        except BaseException as error:
            told = about("died", error=type(error).__name__)
            log.critical("log lines can be read no more", exc_info=True, extra=told)
        finally:
            self._runtime.close(linger_ms=0)

    def end(self) -> None:
        """Answer no more."""
        self._runtime.soon(self._leave)
        self.join()

    def _leave(self) -> None:
        self._leaving = True
