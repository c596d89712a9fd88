"""Opens the inputs and the fronts of a flow.

The fronts of `driftline run` are in the process of the command; in a cluster each front is a
separate process. Both call this module.

Inputs that cannot be read again (standard input, producers, live sources) have a receiver, which
writes records to an input log. Inputs that may grow (files) have a used file (`used_files`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from time import time_ns

from driftline.connectors.guarded import CheckedLiveSource
from driftline.connectors.inputs import Input, PipedInput
from driftline.connectors.live import LiveSource
from driftline.connectors.logs.inputlog import InputLog
from driftline.connectors.logs.received import PipedSource, PolledSource, ReceivedSource
from driftline.deploy.local.config import RunConfig
from driftline.deploy.local.inputs.bad_records import BadRecordFile
from driftline.deploy.local.inputs.used_files import MAY_GROW, UsedFile, open_checked
from driftline.deploy.roles.front import Front
from driftline.deploy.roles.intake import Receiver
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.process import new_id
from driftline.deploy.runtime.receivers import PolledReceiver, StandardInput
from driftline.deploy.runtime.sockets.intake_socket import IntakeSocket
from driftline.engine.errors import Unavailable
from driftline.engine.event_time import EventTime
from driftline.engine.events import event_fields, log
from driftline.engine.flow.plan import Plan
from driftline.engine.labels import INFINITY
from driftline.engine.policy import Output, Policy
from driftline.engine.sources import RetainedSource, Source
from driftline.engine.storage.ownership import DirectoryOwner

LOGGED_RECORDS_MIN = 1_000_000
"""A comparison of at least this many records is logged before it starts, because it takes long."""


def open_input(
    number: int,
    flow_input: Input | RetainedSource,
    config: RunConfig,
    process: ProcessConfig,
    runtime: Runtime,
    receivers: ExitStack,
    is_stop_requested: Callable[[], bool],
    *,
    is_only_input: bool,
    event_time: EventTime | None,
) -> Source | RetainedSource:
    """Return the source of input `number`, with a log and a receiver if it cannot be read again.

    `receivers`: takes the callbacks that close log and receiver; `is_stop_requested`: returns
    whether the run is to drain; `is_only_input`: whether the flow has no other input; `event_time`:
    event time of the flow's source, if any. Raises Unavailable, StateMismatch, NotPermitted.
    """
    if not isinstance(flow_input, str | PipedInput | LiveSource):
        return flow_input
    owner = DirectoryOwner(process.lineage, f"input-{number}", process.session)
    input_log = InputLog(config.state / owner.role, f"{config.flow} {number}", owner)
    receivers.callback(input_log.close)
    store = input_log.execute_job
    receiver: Receiver
    if isinstance(flow_input, PipedInput):
        has_ticks = event_time is not None and event_time.tick is not None
        clock = None if is_only_input and not has_ticks else _now_us
        keep_bad = config.dead_letters
        records = PipedSource(
            input_log, clock, keep_bad=keep_bad, wall_clock_us=_now_us, event_time=event_time
        )
        receiver = piped = StandardInput(records, flow_input, is_stop_requested=is_stop_requested)
        runtime.add_with_input(
            piped, piped.file, piped.handle_input, has_room=piped.has_room, execute_job=store
        )
        piped.announce()
    elif isinstance(flow_input, LiveSource):
        polling = PolledSource(input_log, _now_us, CheckedLiveSource(flow_input).name, event_time)
        receiver = polled = PolledReceiver(polling, flow_input, name=f"poller-{number}")
        runtime.add_with_input(
            polled, polled.file, polled.handle_input, has_room=polled.has_room, execute_job=store
        )
        polled.begin()
    else:
        received = ReceivedSource(input_log, _now_us, name=flow_input, event_time=event_time)
        keys = config.sender_rules.keys_of(number, flow_input)
        receiver = intake = IntakeSocket(received, flow_input, name=f"intake-{number}", keys=keys)
        runtime.add_with_input(
            intake, intake.socket, intake.handle_input, has_work=intake.has_work, execute_job=store
        )
        fields = event_fields("input", name=flow_input, address=intake.address)
        log.info("listening for producers on %s", intake.address, extra=fields)
    if not config.policy.replay:
        receivers.callback(_trim_log, input_log, receiver.source)
    receivers.callback(receiver.close)
    return receiver.source


def _now_us() -> int:
    return time_ns() // 1000


def open_front(
    number: int,
    source: Source | RetainedSource,
    bad_records: BadRecordFile,
    start: int,
    flow_plan: Plan,
    config: RunConfig,
    process: ProcessConfig,
    runtime: Runtime,
    *,
    token: str,
) -> Front:
    """Return the front that reads a source, driven by the runtime.

    `start`: the time from which the front will read; `token`: unique name of its process. Raises
    StateMismatch, InputError, Unavailable.
    """
    used_file, front_source = None, source
    if isinstance(source, MAY_GROW):
        used_file = _open_used_file(number, source, config, process)
        checked = open_checked(source, used_file, bad_records, start)
        if config.policy.replay:  # without replays, used records are not stored
            front_source = checked
    front = Front(
        number,
        config.nodes,
        flow_plan,
        config.policy,
        front_source,
        new_id,
        process=token,
        window=config.window,
        on_bad=bad_records.add if config.dead_letters else None,
        run=process.run,
    )
    execute_job = None if used_file is None else used_file.execute_job
    front.address = runtime.add(front, process.inbox(f"front-{number}"), execute_job)
    front.addresses["master"] = process.master_at
    return front


def record_used(fronts: Sequence[Front], policy: Policy, *, succeeded: bool) -> None:
    """Record which records were used since the last snapshot.

    `succeeded`: whether the run ended without an error. If so, and if all inputs were read to their
    end, all records were used. Otherwise only records whose outputs are delivered were used. These
    are known only if outputs leave in the order of their times; else nothing is recorded.
    """
    all_read = succeeded and all(front.next >= INFINITY for front in fronts)
    by_time = policy.output in (Output.FRONTIER, Output.DURABLE)
    furthest = max(front.max_sent_time for front in fronts)
    for front in fronts:
        if all_read:
            front.store_fingerprint((furthest if by_time else front.max_sent_time) + 1)
        elif by_time:
            front.store_fingerprint(min(furthest + 1, front.completed))


def _open_used_file(
    number: int, source: Source | RetainedSource, config: RunConfig, process: ProcessConfig
) -> UsedFile:
    """Open the used file of an input."""
    owner = DirectoryOwner(process.lineage, f"used-{number}", process.session)
    used_file = UsedFile(config.state / f"input-{number}.used", owner)
    if used_file.fingerprint.last >= LOGGED_RECORDS_MIN:
        log.info(
            "%s: comparing the %d records used so far",
            *(source.name, used_file.fingerprint.last),
            extra=event_fields("comparing", name=source.name, records=used_file.fingerprint.last),
        )
    return used_file


def _trim_log(input_log: InputLog, source: ReceivedSource) -> None:
    """Trim the log up to the time at which the next call of the command resumes.

    Only for policies without replays: they have no snapshots after which the log is trimmed.
    """
    with suppress(Unavailable):  # an error must not hide the outcome of the run
        input_log.trim(source.trimmed)


RECEIVED, PIPED = "received", "received from standard input"
"""Identities of inputs: records of producers, and standard input. No file has such an identity."""

POLLED = "polled from "
"""Prefix of the identity of a live source.

The identity of a file may start with it, too, but ends with the file's format in parentheses.
"""


def has_log(identity: str) -> bool:
    """Return whether the input with this identity has an input log."""
    live = identity.startswith(POLLED) and not identity.endswith(")")
    return live or identity in (RECEIVED, PIPED)


def identity_of(flow_input: Input | RetainedSource) -> str:
    """Return the text that identifies an input in the identity of a run."""
    if isinstance(flow_input, str):
        return RECEIVED
    if isinstance(flow_input, LiveSource):
        return f"{POLLED}{CheckedLiveSource(flow_input).identity()!r}"
    return PIPED if isinstance(flow_input, PipedInput) else flow_input.identity()
