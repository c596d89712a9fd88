"""Savepoints: writes the last snapshot of a run as files, and begins a run from such files.

`restore_run` leaves a state directory as if its run had just committed the savepoint as its first
snapshot. The ordinary recovery does the rest: nodes load their key groups, fronts go on from the
savepoint's time. The registry names the snapshot last, so an interrupted restore is done again.

The state has all records with times below T, of all sources, and whatever comes is later. So a
source goes on at T, also one that the savepoint does not know: a live one, whose times are of the
clock, is behind T anyway. The records of a file are numbered from 1. They go on at T if the file is
the one that the savepoint was made of, which its checksum says; any other file would lose its first
records without a word, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple
from pathlib import Path

from driftline.connectors.inputs import Input, Piped
from driftline.connectors.logs.inputlog import INPUT_LOG
from driftline.coordinator.registry import ClusterState, FileRegistry, SnapshotRecord
from driftline.deploy.local.config import Start
from driftline.deploy.local.ending import How, how_ended
from driftline.deploy.local.inputs.fronts import PIPED, has_log
from driftline.deploy.local.inputs.tallies import NUMBERED
from driftline.deploy.local.inputs.used_files import MAY_GROW, UsedFile, read_used
from driftline.deploy.runtime.claims import claim, wait_for_others
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.events import about, log
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import plan
from driftline.engine.keygroups import GroupCache, owned_by
from driftline.engine.policy import POLICIES, Policy, SnapshotCut
from driftline.engine.snapshots.fitting import FIRST, Fitted, begin_with, fit
from driftline.engine.snapshots.merging import restore
from driftline.engine.snapshots.savepoint import SavedInput, Savepoint, begin, complete, write_table
from driftline.engine.snapshots.store import LmdbStore, PartStore, read_store
from driftline.engine.sources import RetainedSource, Source
from driftline.engine.sources.source import time_of
from driftline.engine.sources.used import CheckedSource, StoreUsed, Used
from driftline.engine.state.table import StateTable
from driftline.engine.storage.manifest import Mark
from driftline.engine.texts import counted, time_in_words


def restore_run(
    state: Path,
    flow: Flow,
    inputs: Sequence[Input | RetainedSource],
    nodes: int,
    policy: Policy,
    start: Start,
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
    fitted = fit(savepoint, flow, start.choice)
    if policy.cut is SnapshotCut.NONE:
        raise StateMismatch(
            f"policy {policy.name} takes no snapshots: a run cannot begin from a savepoint"
        )
    _check_inputs(fitted, flow, inputs)
    used = _check_used(fitted, flow, inputs)
    for index in range(nodes):
        mark = Mark(run.lineage, f"node-{index}", run.opened + 1)
        with _store(state, index, run.identity, flow, mark) as store:
            begin_with(store, fitted, owned_by(index, nodes, flow.groups))
    for index, records in used.items():
        mark = Mark(run.lineage, f"used-{index}", run.opened + 1)
        UsedFile(state / f"input-{index}.used", mark).carry_out(
            StoreUsed(records, by_snapshot=True)
        )
    record = SnapshotRecord(FIRST, savepoint.time, (savepoint.time,) * len(flow.sources))
    registry.write(run.next(snapshots=(record,), base=FIRST))
    if fitted.notes:
        log.info(
            "from savepoint %s: %s",
            *(savepoint.path, "; ".join(fitted.notes)),
            extra=about("savepoint-fitted"),
        )


def _check_inputs(fitted: Fitted, flow: Flow, inputs: Sequence[Input | RetainedSource]) -> None:
    """Raises StateMismatch if records of an input would be taken for records of another one."""
    for source, given in zip(flow.sources, inputs, strict=True):
        check_restored(fitted, source.name, given, alone=len(inputs) == 1)


def check_restored(
    fitted: Fitted, source: str, given: Input | RetainedSource, *, alone: bool
) -> None:
    """Check the input of one source, as `restore_run` does; `alone`: there is no other one.

    Raises StateMismatch.
    """
    savepoint, first = fitted.savepoint, time_in_words(fitted.savepoint.time)
    if savepoint.time <= 1 or not _numbered(given, alone=alone):
        return
    if source not in fitted.inputs:
        raise StateMismatch(
            f"source {source!r} is not in savepoint {savepoint.path}, and its input has its "
            f"records numbered from 1: the state is that before {first}, so all records before "
            "that one would be left out. Let producers send them (tcp://), as what is received "
            "comes after everything; or, if it is a source of the savepoint under another name, "
            f"say which: --rename-state OLD={source}"
        )
    before = fitted.inputs[source]
    if before is not None and not before.numbered:
        raise StateMismatch(
            f"the records of source {source!r} were received when savepoint {savepoint.path} was "
            f"made, and are numbered from 1 now: the state is that before {first}, so they would "
            "be left out. Let producers send them (tcp://), or give the input log of the run that "
            "made it (its directory input-0, or another number)"
        )


def _check_used(
    fitted: Fitted, flow: Flow, inputs: Sequence[Input | RetainedSource]
) -> dict[int, Used]:
    """What the savepoint was made of, by the number of the input, where that can be compared.

    Raises StateMismatch if an input has other records now, InputError, Unavailable.
    """
    checked = (
        used_of(fitted, source.name, given)
        for source, given in zip(flow.sources, inputs, strict=True)
    )
    return {index: used for index, used in enumerate(checked) if used is not None}


def used_of(fitted: Fitted, source: str, given: Input | RetainedSource) -> Used | None:
    """What the savepoint was made of, once the input of a source is compared with it; None if it
    cannot be. Raises StateMismatch if it has other records now, or too few, or if nobody knows
    which there were; InputError, Unavailable."""
    before, savepoint = fitted.inputs.get(source), fitted.savepoint
    if source not in fitted.inputs or not isinstance(given, MAY_GROW):
        return None
    used = Used() if before is None or before.used is None else Used(*before.used)
    if before is not None and before.used is None and savepoint.time > 1:
        raise StateMismatch(
            f"savepoint {savepoint.path} does not know of which records of source {source!r} it "
            f"was made: those of {given.name} cannot be compared. The front did not answer when it "
            f"was saved, or its input was no file. {_unchecked(fitted, source)}"
        )
    ways_out = (
        "Give the input of the savepoint, with more records at its end. Or: "
        f"{_unchecked(fitted, source)}"
    )
    user = f"savepoint {savepoint.path}"
    CheckedSource(given, used, user=user, ways_out=ways_out).check(savepoint.time)
    if used.until < savepoint.time and fitted.alone:
        _check_length(savepoint, given)
    if source in fitted.unsaid:
        log.warning(
            "the records of %s before %s are not compared: savepoint %s does not say of which it "
            "was made, as it comes from Spark",
            *(given.name, time_in_words(savepoint.time), savepoint.path),
            extra=about("not-compared", name=given.name),
        )
    return used if used.until else None


def _unchecked(fitted: Fitted, source: str) -> str:
    return (
        f"To begin with the records of this input at {time_in_words(fitted.savepoint.time)}, "
        f"whatever is before them, add --drop-state {source}"
    )


def _check_length(savepoint: Savepoint, given: Source) -> None:
    """Raises StateMismatch if the only input of a savepoint has fewer records than it was made of;
    InputError, Unavailable."""
    needed = savepoint.time - 1
    if needed < 1 or any(True for _ in given.read(needed)):
        return
    has = max(map(time_of, given.read(1)), default=0)
    raise StateMismatch(
        f"{given.name}: it has only {counted(has, 'record')} now, but savepoint {savepoint.path} "
        f"was made of {needed}: nothing of it would be read. Give the input of the savepoint, with "
        "more records at its end"
    )


def _numbered(given: Input | RetainedSource, *, alone: bool) -> bool:
    """Whether the times of an input are the numbers of its records; `alone`: it is the only one."""
    return isinstance(given, NUMBERED) or (alone and isinstance(given, Piped))


def save_run(state: Path, flow: Flow, output: Path) -> tuple[Savepoint, How]:
    """Write the last committed snapshot of a run as a savepoint into a new directory.

    Changes nothing in `state`. Returns also how the run ended: in good order, the savepoint has all
    records that it worked off. Raises Unavailable if there is no snapshot, or the run is still
    going on; StateMismatch if the snapshot is of another flow, or not a cut by label;
    SnapshotDamaged.
    """
    wait_for_others(state)
    claim(state / "master.lock")
    run = FileRegistry(state / "registry").read()
    if run is None:
        raise Unavailable(f"{state} is no state directory of a run: it has no registry")
    _check_cut(run, flow, state)
    if not run.snapshots:
        raise Unavailable(
            f"{state} holds no committed snapshot: its run has worked off no record, or was ended "
            "at once before the first one. A run writes one when it comes to the end of its input, "
            "and when a signal ends it: let it go on, and end in good order"
        )
    begin(output)
    record = run.snapshots[0]
    nodes = run.layout or range(len(list(state.glob("node-*/"))))  # a node that left has old state
    groups = GroupCache(flow.groups)
    for index in nodes:
        tables = {v.name: StateTable(v.states, []) for v in flow.vertices if v.keyed}
        store = read_store(state / f"node-{index}")
        if store.mark is not None:
            Mark(run.lineage, f"node-{index}", store.mark.session).over(store.mark, store.name)
        restore(tables, PartStore(store, flow).look(record.number).segments)
        for vertex in flow.vertices:
            if vertex.keyed:
                write_table(output, vertex, tables[vertex.name], groups)
    return complete(output, flow, record.time, _inputs(state, run, record.time)), how_ended(run)


def _inputs(state: Path, run: ClusterState, time: int) -> dict[str, SavedInput]:
    """What is known of the inputs of a run, of the records before a time. Raises StateMismatch,
    Unavailable."""
    if run.about is None:
        return {}
    inputs = {}
    sources = run.about.flow.sources
    for index, (source, given) in enumerate(zip(sources, run.about.inputs, strict=True)):
        noted = read_used(state / f"input-{index}.used")
        used = None if noted is None else noted.below(time)
        if has_log(given) and (given != PIPED or len(sources) > 1):
            inputs[source] = SavedInput(numbered=False)
        else:
            inputs[source] = saved_input(given, () if used is None else astuple(used))
    return inputs


def saved_input(identity: str, used: tuple[int, ...]) -> SavedInput:
    """What a savepoint says of an input that can be read again. `used`: as in `Used`; () if that is
    not known."""
    numbered = not identity.startswith(INPUT_LOG)
    match used:
        case (until, last, total):
            return SavedInput(numbered, (until, last, total))
    return SavedInput(numbered)


def _check_cut(run: ClusterState, flow: Flow, state: Path) -> None:
    of_flow, policy_name, *_ = run.identity.split("|")
    if of_flow != plan(flow).identity():
        raise StateMismatch(f"{state} holds the state of another flow than {flow.name!r}")
    if POLICIES[policy_name].cut is not SnapshotCut.LABEL:
        raise StateMismatch(
            f"{state} was written under {policy_name}, whose snapshots are no cut by label: only "
            "a run with exactly-once can be saved"
        )


@contextmanager
def _store(state: Path, index: int, identity: str, flow: Flow, mark: Mark) -> Iterator[PartStore]:
    with closing(LmdbStore(state / f"node-{index}", identity, mark)) as store:
        yield PartStore(store, flow)
