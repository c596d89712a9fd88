"""Inputs that cannot be read again, as standard input or producers: their receivers and logs."""

from __future__ import annotations

from time import time_ns

from driftline.deploy.host.intake_socket import IntakeSocket
from driftline.deploy.host.runtime import Runtime
from driftline.deploy.host.standard_input import StandardInput
from driftline.deploy.parties.receiver import Receiver
from driftline.engine.sources import LiveSource
from driftline.engine.sources.inputs import Input, Piped
from driftline.engine.sources.logs.inputlog import InputLog
from driftline.engine.sources.logs.piped import PipedSource
from driftline.engine.sources.logs.received import ReceivedSource

RECEIVED, PIPED = "received", "received from standard input"

LOGGED = (RECEIVED, PIPED)
"""The identities of inputs that have a log; no file has such an identity."""


def identity_of(given: Input | LiveSource) -> str:
    """The text by which a state directory knows an input."""
    if isinstance(given, str):
        return RECEIVED
    return PIPED if isinstance(given, Piped) else given.identity()


def receiver_of(
    given: Piped | str,
    input_log: InputLog,
    number: int,
    runtime: Runtime,
    *,
    alone: bool,
    keep_bad: bool,
) -> Receiver:
    """The receiver of input `number`, driven by the runtime; it logs records before they are used.

    `alone`: there is no other input; `keep_bad`: records that cannot be read do not end the run.
    Raises Unavailable.
    """
    if isinstance(given, Piped):
        clock = None if alone else _now_us
        piped = StandardInput(PipedSource(input_log, clock, keep_bad=keep_bad), given)
        runtime.watch(piped, piped.file, piped.drain, piped.room, input_log.carry_out)
        return piped
    source = ReceivedSource(input_log, _now_us, name=given)
    intake = IntakeSocket(source, given, name=f"intake-{number}")
    runtime.watch(intake, intake.socket, intake.drain, intake.room, input_log.carry_out)
    return intake


def _now_us() -> int:
    return time_ns() // 1000


def announcement(receiver: Receiver) -> str:
    """The line that tells the user where records come from."""
    if isinstance(receiver, IntakeSocket):
        return f"listening for producers on {receiver.address}"
    assert isinstance(receiver, StandardInput)
    return receiver.about()
