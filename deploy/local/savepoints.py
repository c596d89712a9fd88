"""Savepoints: writes the last snapshot of a run as files, and begins a run from such files.

`restore_run` leaves a state directory as if its run had just committed the savepoint as its first
snapshot. The ordinary recovery does the rest: nodes load their key groups, fronts continue from the
savepoint's time. The registry is written last, so an interrupted restore is repeated.

The state of a savepoint of time T covers all records with times below T, of all sources. Every
source continues at T, even one that the savepoint does not know. The times of a live source come
from a clock, so its new records are later than T. The records of a file are numbered from 1, so the
file has to be the one that the savepoint was made of, with more records at its end. Its records
below T are not compared; a log line reports that they are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from driftline.connectors.inputs import Input, PipedInput
from driftline.connectors.logs.inputlog import INPUT_LOG
from driftline.coordinator.registry import ClusterState, FileRegistry, SnapshotRecord
from driftline.deploy.local.config import StartOptions
from driftline.deploy.local.inputs.fronts import PIPED, has_log
from driftline.deploy.local.inputs.input_progress import NUMBERED_SOURCES
from driftline.deploy.local.inputs.used_files import MAY_GROW, read_used
from driftline.deploy.local.report import EndStatus, end_status_of
from driftline.deploy.runtime.claims import claim, wait_for_others
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.keygroups import GroupCache, owned_groups
from driftline.engine.policy import POLICIES, Policy, SnapshotCut
from driftline.engine.snapshots.merging import restore
from driftline.engine.snapshots.savepoint import (
    Savepoint,
    create_savepoint_directory,
    write_manifest,
    write_table,
)
from driftline.engine.snapshots.savepoint_mapping import (
    FIRST_SNAPSHOT,
    Fitted,
    fit,
    initialise_store,
)
from driftline.engine.snapshots.store import LmdbStore, PartStore, read_store
from driftline.engine.sources import RetainedSource, Source
from driftline.engine.sources.source import time_of
from driftline.engine.state.table import StateTable
from driftline.engine.storage.ownership import DirectoryOwner
from driftline.engine.texts import counted, format_time


def restore_run(
    state: Path,
    flow: Flow,
    inputs: Sequence[Input | RetainedSource],
    nodes: int,
    policy: Policy,
    start: StartOptions,
) -> None:
    """Make a savepoint the first snapshot of a run, unless the run has begun.

    Precondition: the run is open. Raises StateMismatch if the savepoint does not fit the flow, its
    inputs or the policy, SnapshotDamaged, Unavailable.
    """
    registry = FileRegistry(state / "registry")
    run = registry.read()
    if run is None:
        raise Unavailable(f"{state} holds no run")
    if run.base or run.incarnation:
        return
    savepoint = start.savepoint
    fitted = fit(savepoint, flow, start.mapping)
    if policy.cut is SnapshotCut.NONE:
        raise StateMismatch(
            f"policy {policy.name} takes no snapshots: a run cannot begin from a savepoint"
        )
    for source, flow_input in zip(flow.sources, inputs, strict=True):
        check_restored(fitted, source.name, flow_input, is_only_input=len(inputs) == 1)
    for index in range(nodes):
        owner = DirectoryOwner(run.lineage, f"node-{index}", run.last_session + 1)
        with closing(LmdbStore(state / f"node-{index}", run.identity, owner)) as store:
            parts = PartStore(store, flow)
            initialise_store(parts, fitted, owned_groups(index, nodes, flow.groups))
    time, event_times = savepoint.time, fitted.savepoint.event_times_of(flow)
    offsets = (time,) * len(flow.sources)
    record = SnapshotRecord(FIRST_SNAPSHOT, time, offsets, event_times=event_times)
    registry.write(run.next(snapshots=(record,), base=FIRST_SNAPSHOT))
    if fitted.notes:
        log.info(
            "from savepoint %s: %s",
            *(savepoint.path, "; ".join(fitted.notes)),
            extra=event_fields("savepoint-adapted"),
        )


def check_restored(
    fitted: Fitted, source: str, flow_input: Input | RetainedSource, *, is_only_input: bool
) -> None:
    """Check that the input of a source fits the savepoint from which a run starts.

    `is_only_input`: whether the flow has no other input. Raises StateMismatch if the run would skip
    new records, because their times are below the savepoint's time, or if they would be late,
    because the source had ended; InputError, Unavailable.
    """
    savepoint, cut = fitted.savepoint, format_time(fitted.savepoint.time)
    is_numbered = _has_numbered_records(flow_input, is_only_input=is_only_input)
    if fitted.has_ended(source) and (
        not is_numbered
        or fitted.has_single_source
        or (isinstance(flow_input, Source) and any(True for _ in flow_input.read(savepoint.time)))
    ):
        raise StateMismatch(
            f"savepoint {savepoint.path} was made after source {source!r} had ended: its windows "
            "are complete, and all new records would be late. Make a savepoint of a run that was "
            "drained (SIGTERM) before the end of its input; or process the new records in a new run"
        )
    if savepoint.time <= 1 or not is_numbered:
        return
    if fitted.inputs.get(source, False) is False:  # None: unknown
        is_in_savepoint = source in fitted.inputs
        reason = (
            "had a received input when the savepoint was made"
            if is_in_savepoint
            else "is not in the savepoint"
        )
        raise StateMismatch(
            f"savepoint {savepoint.path} contains the state before {cut}, so the records of source "
            f"{source!r} before {cut} would be left out. But the source {reason}, and its records "
            "are numbered from 1. Let producers send them (tcp://): received records get later "
            "times; or give the input log of the run that made the savepoint (its directory "
            f"input-0, or another number); or, if the source had another name, give "
            f"--rename-state OLD={source}"
        )
    if fitted.has_single_source and isinstance(flow_input, MAY_GROW):
        _check_length(savepoint, flow_input)
    elif (last := savepoint.last_records.get(source)) is not None and isinstance(
        flow_input, Source
    ):
        new = next(map(time_of, flow_input.read(last + 1)), savepoint.time)
        if new < savepoint.time:
            raise StateMismatch(
                f"savepoint {savepoint.path} is of the state before {cut}. Source {source!r} had "
                f"{counted(last, 'record')} then, so its new {format_time(new)} would be left out: "
                "records are ordered by their numbers. Process the new records in a new run"
            )
    log.info(
        "%s: records before %s are not read: savepoint %s contains them",
        *(source, cut, savepoint.path),
        extra=event_fields("records-in-savepoint", source=source, time=savepoint.time),
    )


def _check_length(savepoint: Savepoint, flow_input: Source) -> None:
    """Check that the only input has at least as many records as the savepoint contains.

    Raises StateMismatch if not; InputError, Unavailable.
    """
    needed = savepoint.time - 1
    if needed < 1 or any(True for _ in flow_input.read(needed)):
        return
    length = max(map(time_of, flow_input.read(1)), default=0)
    raise StateMismatch(
        f"{flow_input.name} has only {counted(length, 'record')} now, but savepoint "
        f"{savepoint.path} contains {needed}: no record would be read. Give the input of the "
        "savepoint, with new records appended"
    )


def _has_numbered_records(flow_input: Input | RetainedSource, *, is_only_input: bool) -> bool:
    """Return whether an input uses the numbers of its records as times.

    `is_only_input`: whether the flow has no other input.
    """
    return isinstance(flow_input, NUMBERED_SOURCES) or (
        is_only_input and isinstance(flow_input, PipedInput)
    )


def save_run(state: Path, flow: Flow, output: Path) -> tuple[Savepoint, EndStatus]:
    """Write the last committed snapshot of a run as a savepoint into a new directory.

    Changes nothing in `state`. Also returns how the run ended: after a drain, the savepoint
    contains all records that the run processed. Raises Unavailable if there is no snapshot or the
    run is still active; StateMismatch if the snapshot is of another flow, or not a cut by label;
    SnapshotDamaged.
    """
    wait_for_others(state)
    with ExitStack() as stack:
        stack.callback(claim(state / "master.lock").release)
        return _save(state, flow, output)


def _save(state: Path, flow: Flow, output: Path) -> tuple[Savepoint, EndStatus]:
    run = FileRegistry(state / "registry").read()
    if run is None:
        raise Unavailable(f"{state} is not a state directory of a run: it has no registry")
    _check_can_be_saved(run, flow, state)
    if not run.snapshots:
        raise Unavailable(
            f"{state} holds no committed snapshot: its run has processed no record, or ended "
            "before the first snapshot. A run writes one at the end of its input, and when a "
            "signal drains it: continue the run, and drain it"
        )
    create_savepoint_directory(output)
    record = run.snapshots[0]
    # Nodes of earlier layouts may have left directories with old state.
    nodes = run.layout or range(len(list(state.glob("node-*/"))))
    groups = GroupCache(flow.groups)
    for index in nodes:
        tables = {v.name: StateTable(v.states, []) for v in flow.vertices if v.is_keyed}
        store = read_store(state / f"node-{index}")
        if store.owner is not None:
            DirectoryOwner(run.lineage, f"node-{index}", store.owner.session).supersede(
                store.owner, store.name
            )
        restore(tables, PartStore(store, flow).read_snapshot(record.number).segments)
        for vertex in flow.vertices:
            if vertex.is_keyed:
                write_table(output, vertex, tables[vertex.name], groups)
    manifest = write_manifest(
        *(output, flow, record.time, _numbered_inputs(run), record.event_times),
        last_records=_last_records(state, flow, record.time),
    )
    return manifest, end_status_of(run)


def _last_records(state: Path, flow: Flow, time: int) -> dict[str, int]:
    """Return source -> number of its last record before `time`, as far as used files show it."""
    used_files = [read_used(state / f"input-{i}.used") for i in range(len(flow.sources))]
    return {
        source.name: used.fingerprint.last
        for source, used in zip(flow.sources, used_files, strict=True)
        if used is not None and used.fingerprint.last < time <= used.fingerprint.until
    }


def _numbered_inputs(run: ClusterState) -> dict[str, bool]:
    """Map each source to whether its records are numbered from 1."""
    if run.identity_details is None:
        return {}
    is_only_input = len(run.identity_details.inputs) == 1
    return {
        source: (identity == PIPED and is_only_input)
        or not (has_log(identity) or identity.startswith(INPUT_LOG))
        for source, identity in zip(
            run.identity_details.flow.sources, run.identity_details.inputs, strict=True
        )
    }


def _check_can_be_saved(run: ClusterState, flow: Flow, state: Path) -> None:
    flow_identity, policy_name, *_ = run.identity.split("|")
    if flow_identity != make_plan(flow).identity():
        raise StateMismatch(f"{state} holds the state of another flow than {flow.name!r}")
    if POLICIES[policy_name].cut is not SnapshotCut.LABEL:
        raise StateMismatch(
            f"{state} was written under {policy_name}, whose snapshots are not cuts by label: only "
            "a run with exactly-once can be saved"
        )
