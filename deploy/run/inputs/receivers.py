"""Receivers for inputs that cannot be read again: standard input and producers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic, time_ns

from driftline.deploy.host.loop.runtime import Runtime
from driftline.deploy.host.sockets.intake_socket import IntakeSocket
from driftline.deploy.host.standard_input import StandardInput
from driftline.deploy.parties.receiver import Receiver
from driftline.deploy.run.inputs.reach import HERE, Reach
from driftline.engine.events import about, log
from driftline.engine.sources import LiveSource
from driftline.engine.sources.inputs import Input, Piped
from driftline.engine.sources.logs.ages import Ages
from driftline.engine.sources.logs.inputlog import InputLog
from driftline.engine.sources.logs.piped import PipedSource
from driftline.engine.sources.logs.received import ReceivedSource

RECEIVED, PIPED = "received", "received from standard input"

LOGGED = (RECEIVED, PIPED)
"""The identities of inputs with a log; no file has one of them."""


def identity_of(given: Input | LiveSource) -> str:
    """The text that stands for an input in the identity of a run."""
    if isinstance(given, str):
        return RECEIVED
    return PIPED if isinstance(given, Piped) else given.identity()


def receiver_of(
    given: Piped | str,
    input_log: InputLog,
    number: int,
    runtime: Runtime,
    folder: Path,
    *,
    alone: bool,
    keep_bad: bool,
    asked_to_end: Callable[[], bool],
    reach: Reach = HERE,
) -> Receiver:
    """A receiver for input `number`, driven by the runtime. It logs records before their use.

    `given`: standard input, or the address to listen at; `folder`: where the sockets of the run
    are; `alone`: there is no other input; `keep_bad`: records that cannot be read do not end the
    run; `asked_to_end`: whether the run has been asked to end; `reach`: who may send. Raises
    Unavailable if there is no standard input, or the address cannot be used, NotPermitted.
    """
    if isinstance(given, Piped):
        clock = None if alone else _now_us
        ages = Ages(_now_us, monotonic, by_time=clock is not None)
        source_of_pipe = PipedSource(input_log, clock, keep_bad=keep_bad, ages=ages)
        piped = StandardInput(source_of_pipe, given, asked_to_end=asked_to_end)
        runtime.watch(piped, piped.file, piped.drain, piped.room, input_log.carry_out)
        return piped
    source = ReceivedSource(input_log, _now_us, name=given, ages=Ages(_now_us, monotonic))
    keys = reach.keys_of(number, given)
    intake = IntakeSocket(source, given, folder, name=f"intake-{number}", keys=keys)
    runtime.watch(intake, intake.socket, intake.drain, intake.room, input_log.carry_out)
    return intake


def _now_us() -> int:
    return time_ns() // 1000


def announce(receiver: Receiver) -> None:
    """Tell where records come from."""
    if isinstance(receiver, StandardInput):
        receiver.announce()
    elif isinstance(receiver, IntakeSocket):
        fields = about("input", name=receiver.source.name, address=receiver.address)
        log.info("listening for producers on %s", receiver.address, extra=fields)
