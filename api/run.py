"""`run`: run a flow over records, from Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from signal import SIGINT
from types import ModuleType, NoneType
from typing import overload

from msgspec.structs import replace
from rich.console import Console

from driftline.api.in_process import InProcessRun
from driftline.api.inputs import Inputs, sources_of
from driftline.api.outputs import RunSummary
from driftline.connectors.outputs import count_delivered, resolve_checked_output, resolve_output
from driftline.connectors.sinks import Consumer
from driftline.deploy.local.config import RunConfig
from driftline.deploy.local.run import run_flow
from driftline.engine.errors import FlowError
from driftline.engine.flow.code import code_of
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.loading import (
    FILE_MODULE_PREFIX,
    RunWhileLoading,
    check_not_loading,
    load_flow,
    resolve_flow,
)
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import get_policy as policy_named
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
    snapshot_interval_ms: int = 1000,
    state: str | Path | None = None,
    dead_letters: bool = False,
    fresh: bool = False,
    accept_changed_code: bool = False,
) -> Iterator[Item]: ...
@overload
def run(
    flow: Flow | str,
    inputs: Inputs,
    output: list[Item] | str | Path | Consumer,
    *,
    nodes: int = 1,
    policy: str = "exactly-once",
    ordering: str = "speculative",
    snapshot_interval_ms: int = 1000,
    state: str | Path | None = None,
    dead_letters: bool = False,
    fresh: bool = False,
    accept_changed_code: bool = False,
) -> RunSummary: ...
def run(
    flow: Flow | str,
    inputs: Inputs,
    output: list[Item] | str | Path | Consumer | None = None,
    *,
    nodes: int = 1,
    policy: str = "exactly-once",
    ordering: str = "speculative",
    snapshot_interval_ms: int = 1000,
    state: str | Path | None = None,
    dead_letters: bool = False,
    fresh: bool = False,
    accept_changed_code: bool = False,
) -> Iterator[Item] | RunSummary:
    """Run a flow over records, on real nodes.

    Under exactly-once, the outputs are those of `run_reference`.

        >>> from driftline import Flow, run
        >>> flow = Flow("shout")
        >>> flow.source("words").map(lambda word: word.upper()).sink()
        >>> [item.value for item in run(flow, {"words": ["a", "b"]})]
        ['A', 'B']

    Nodes and master are separate processes if `output` is a path or an address, and other processes
    can import the flow: `flow` is a string, or the flow is a variable of a module, or of a script
    that calls `run` under ``if __name__ == "__main__":``. Their state is in the directory `state`,
    dead processes are restarted, and the same call resumes where an earlier one was interrupted.

    Otherwise everything runs in this process, with the same code, and only outputs in a directory
    or another sink are durable: the same call reads all input again, and adds the missing outputs.
    Iterators and live sources cannot be read again: each call with one is another run, and raises
    StateMismatch for the output directory of an earlier call.

    Args:
        flow: A Flow, or the name of one: ``"module:name"``, ``"file.py:name"``.
        inputs: One input for each source: ``{name: input}``, or a list in the order of the sources.
            An input is a list of records, an iterator of records, the path of a file (JSON lines,
            CSV, text, Wikimedia XML; .gz, .bz2, .xz and .zst of these; a string is a path), a
            `Source` or a `LiveSource`. From an iterator, at most a few records are read ahead; a
            slow iterator is read only once the outputs of all earlier records are delivered.
        output: None: the result is an iterator of outputs in label order, each as soon as it is
            final. A list: outputs are appended to it in label order. A path: a directory for JSON
            lines, as `driftline run` writes them. ``"lmdb:DIR"``: a directory with an LMDB store.
            The address of a sink, such as ``"python:shop.py:orders"``: node processes then require
            `state`. A `Consumer`: it stores the outputs, and everything runs in this process.
        nodes: Number of nodes.
        policy: Guarantee of the run, see `driftline run --help`. Under a policy without label
            order, outputs are in the order of their delivery.
        ordering: How operators keep label order: ``"speculative"`` or ``"buffered"``.
        snapshot_interval_ms: Milliseconds between snapshots; of virtual time if everything runs in
            this process.
        state: The state directory of node processes; by default a directory in `output`.
        dead_letters: Set aside records that cannot be read (in files if `output` is a directory),
            and elements whose function raises (as items of sink -1), instead of raising.
        fresh: Remove state and outputs of an earlier run of node processes first.
        accept_changed_code: Resume from the state of node processes although the code of operators
            has changed. Existing outputs stay; the new code produces only later ones.

    Returns:
        An iterator of `Item` if `output` is None, else a `RunSummary`.

    Raises:
        FlowError: The flow cannot run, or inputs, outputs or numbers do not fit it.
        FunctionFailed: A function raised; the error names operator, label, key and line. The last
            outputs before it may be missing.
        InputError: A record cannot be read, has values outside the wire format, or is too large.
        StateMismatch: A directory belongs to another run, or the code of an operator has changed.
        Unavailable: A file or directory cannot be used.
        Exception: Any error that an iterator raises, except that `Unavailable` becomes InputError.
    """
    check_not_loading("run(...)")
    loaded = resolve_flow(flow)
    sources = sources_of(loaded, inputs)
    run_policy = policy_named(policy, ordering)
    if state == "":
        raise FlowError("state= is an empty text: give a directory")
    is_number = isinstance(snapshot_interval_ms, int | float)
    if type(nodes) is not int or nodes < 1 or not (is_number and snapshot_interval_ms >= 1):
        raise FlowError(
            f"nodes={nodes!r}, snapshot_interval_ms={snapshot_interval_ms!r}: give an int and a "
            "number of milliseconds, both at least 1"
        )
    loaded.check_nodes(nodes)
    loaded.check_policy(run_policy)
    if not isinstance(output, (str, Path, list, NoneType, Consumer)):
        raise FlowError(
            f"outputs cannot go to a {type(output).__name__}: give a list, the path of a "
            "directory, the address of a sink, a Consumer, or None for an iterator"
        )
    if isinstance(output, (str, Path)):
        resolve_checked_output(str(output), Path())
        spec, imported = (flow, loaded) if isinstance(flow, str) else as_importable(flow)
        if spec:
            place = resolve_output(str(output), None if state is None else Path(state))
            place = replace(place, directory=place.directory.absolute())
            default_state = place.directory / ".driftline" / "state"
            state_path = default_state if state is None else Path(state)
            config = RunConfig(
                spec, sources, place, nodes, run_policy, snapshot_interval_ms / 1000,
                state_path.absolute(), dead_letters, None, paths=search_paths(),
                accept_changed_code=accept_changed_code, fresh=fresh,
            )  # fmt: skip
            return _run_in_processes(imported, config)
    if state is not None or fresh or accept_changed_code:
        name = "state" if state is not None else "fresh" if fresh else "accept_changed_code"
        raise FlowError(
            f"{name}= is for nodes that are processes: give a path or an address as output=, and a "
            "flow that other processes can import, as 'module:name'"
        )
    interval_s = snapshot_interval_ms / 1000
    in_process = InProcessRun(loaded, sources, run_policy, nodes, interval_s, dead_letters)
    if isinstance(output, list):
        return in_process.append_to(output)
    return in_process.items() if output is None else in_process.write_to(output)


def _run_in_processes(flow: Flow, config: RunConfig) -> RunSummary:
    report = run_flow(flow, config, Console(stderr=True))
    if report.ended_by is not None:  # a signal to this process ended the run, without an error
        raise KeyboardInterrupt if report.ended_by is SIGINT else SystemExit(128 + report.ended_by)
    return RunSummary(
        report.records,
        count_delivered(config.output.directory)[0],
        report.dead_letters,
        report.bad_records,
        report.late_elements,
        report.seconds,
        processes=True,
    )


def as_importable(flow: Flow) -> tuple[str, Flow]:
    """Return the name of a flow, and the flow as other processes import it.

    The name is ``module:name`` or ``file.py:name``. It is empty, and the flow is `flow` itself, if
    no other process can make this flow: it was made in a function, in a notebook, or under
    ``if __name__ == "__main__"``. To check this, a script is executed under another name. Raises
    RunWhileLoading if the script then runs the flow.
    """
    for module in _modules(flow):
        for name, value in list(vars(module).items()):
            if value is flow and (module_name := _import_name(module)):
                try:
                    other = load_flow(f"{module_name}:{name}")
                except RunWhileLoading:
                    raise
                except FlowError:
                    continue
                if _describe(other) == _describe(flow):
                    return f"{module_name}:{name}", other
    return "", flow


def search_paths() -> tuple[str, ...]:
    """Return the folders in which this process looks for modules."""
    return tuple(dict.fromkeys(os.path.abspath(path) for path in sys.path))


def _modules(flow: Flow) -> list[ModuleType]:
    """Return all loaded modules, beginning with the modules of the flow's functions."""
    function_modules = {getattr(vertex.function, "__module__", "") for vertex in flow.vertices}
    loaded = [module for module in sys.modules.values() if isinstance(module, ModuleType)]
    return sorted(loaded, key=lambda module: module.__name__ not in function_modules)


def _import_name(module: ModuleType) -> str:
    """Return the name or file by which other processes import a module; empty if they cannot."""
    if module.__name__ != "__main__" and not module.__name__.startswith(FILE_MODULE_PREFIX):
        return module.__name__
    spec = module.__spec__
    if module.__name__ == "__main__" and spec is not None:  # python -m package.module
        return spec.name
    file = getattr(module, "__file__", None) or ""
    return str(Path(file).absolute()) if file.endswith(".py") and ":" not in file else ""


def _describe(flow: Flow) -> object:
    """Return a value that is equal for flows with the same graph and code.

    The graph alone is not enough: under ``if __name__ == "__main__":`` a script may build the same
    graph with other parameters.
    """
    return make_plan(flow).identity(), code_of(flow)
