"""`run`: a flow over records, from Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import overload

from rich.console import Console

from driftline.deploy.api.here import Here
from driftline.deploy.api.importable import name_of, search_paths
from driftline.deploy.api.inputs import Inputs, sources_of
from driftline.deploy.api.outputs import Lmdb, RunSummary, counted
from driftline.deploy.parties.front import WINDOW
from driftline.deploy.run.run import RunConfig, run_flow
from driftline.engine.errors import FlowError
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.loading import check_not_loading, load_flow
from driftline.engine.policy import policy as policy_named
from driftline.engine.wire.bundles import Item


@overload
def run(
    flow: Flow | str,
    inputs: Inputs,
    output: None = None,
    *,
    nodes: int = 1,
    policy: str = "exactly-once",
    ordering: str = "speculative",
    checkpoint_ms: int = 1000,
    state: str | Path | None = None,
    dead_letters: bool = False,
) -> Iterator[Item]: ...
@overload
def run(
    flow: Flow | str,
    inputs: Inputs,
    output: list[Item] | str | Path | Lmdb,
    *,
    nodes: int = 1,
    policy: str = "exactly-once",
    ordering: str = "speculative",
    checkpoint_ms: int = 1000,
    state: str | Path | None = None,
    dead_letters: bool = False,
) -> RunSummary: ...
def run(
    flow: Flow | str,
    inputs: Inputs,
    output: list[Item] | str | Path | Lmdb | None = None,
    *,
    nodes: int = 1,
    policy: str = "exactly-once",
    ordering: str = "speculative",
    checkpoint_ms: int = 1000,
    state: str | Path | None = None,
    dead_letters: bool = False,
) -> Iterator[Item] | RunSummary:
    """Run a flow over records, on real nodes: what comes out is what `run_reference` gives.

        >>> from driftline import Flow, run
        >>> flow = Flow("shout")
        >>> flow.source("words").map(lambda word: word.upper()).sink()
        >>> [item.value for item in run(flow, {"words": ["a", "b"]})]
        ['A', 'B']

    Where it runs: nodes and master are processes if `output` is a directory and other processes can
    import the flow: it is given as text, or it stands under a name in a module, or in a script
    whose call of `run` is under ``if __name__ == "__main__":``. They keep their state in the
    directory `state`, processes that die are started again, and the same call goes on where an
    earlier one was interrupted. Otherwise all is in this process, by the same code, and only
    outputs in a directory or LMDB are durable: the same call reads all input again then, and adds
    what is not there yet.

    Arguments:
        flow: a Flow, or where one is: ``"module:name"``, ``"file.py:name"``.
        inputs: for each source an input, ``{name: input}`` or a list in the order of the sources.
            An input is a list of records, an iterator of them, the path of a file (a text is a
            path: JSON lines, CSV, text, Wikimedia XML; .gz and .bz2 of these), or a `Source`.
            An iterator is asked for few records ahead, and for none while one that takes its time
            has outputs to come.
        output: None: the result is an iterator of the outputs in label order, each as soon as it is
            final. A list: outputs are appended to it in that order. A path: a directory for JSON
            lines, as those of the command `driftline run`. ``Lmdb(path)``: a directory of LMDB.
        nodes: how many.
        policy: what is guaranteed, see `driftline run --help`. In those without an order, outputs
            come in the order in which they are delivered.
        ordering: how label order is kept, speculative or buffered.
        checkpoint_ms: the time between snapshots; of virtual time, if all is in this process.
        state: the directory of snapshots of node processes, if not in `output`.
        dead_letters: set aside records that cannot be read, and elements whose function raises (as
            items of sink -1), instead of raising.

    Returns an iterator of `Item`, or what the run came to.

    Raises FlowError for a flow or inputs that do not fit, FunctionFailed where a function raises,
    with operator, label, key and line (the last outputs before it may be missing), InputError for a
    record that cannot be read, PayloadError for one that cannot travel, StateMismatch for a
    directory of another run, Unavailable for files that cannot be used; and whatever an iterator
    given as input raises.
    """
    check_not_loading("run(...)")
    found = load_flow(flow) if isinstance(flow, str) else flow
    sources = sources_of(found, inputs)
    chosen = policy_named(policy, ordering)
    if nodes < 1 or checkpoint_ms < 1:
        raise FlowError(f"nodes={nodes}, checkpoint_ms={checkpoint_ms}: both are at least 1")
    if not isinstance(output, (str, Path, Lmdb, list, NoneType)):
        raise FlowError(
            f"outputs cannot go to a {type(output).__name__}: give a list, the path of a "
            "directory, Lmdb(path), or nothing for an iterator"
        )
    if isinstance(output, (str, Path)):
        output = Path(output).absolute()
        spec = flow if isinstance(flow, str) else name_of(flow)
        if spec:
            kept = Path(state).absolute() if state is not None else output / ".driftline" / "state"
            config = RunConfig(
                spec, sources, output, nodes, chosen, checkpoint_ms / 1000, kept, dead_letters,
                WINDOW, paths=search_paths(),
            )  # fmt: skip
            return _in_processes(found, config)
    if state is not None:
        raise FlowError(
            "state= is for nodes that are processes: give a directory as output=, and a flow that "
            "other processes can import, as 'module:name'"
        )
    here = Here(found, sources, chosen, nodes, checkpoint_ms / 1000, dead_letters)
    if isinstance(output, (Path, Lmdb)):
        return here.into(output)
    return here.items() if output is None else here.appended_to(output)


def _in_processes(flow: Flow, config: RunConfig) -> RunSummary:
    report = run_flow(flow, config, Console(stderr=True))
    outputs, failed = counted(config.output)
    return RunSummary(
        report.records, outputs, failed, report.bad_records, report.seconds, processes=True
    )
