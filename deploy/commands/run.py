"""Command `driftline run`: run a flow on this machine."""

from __future__ import annotations

from collections.abc import Collection
from os.path import realpath
from pathlib import Path

import click
from msgspec.structs import replace
from rich.console import Console

from driftline.connectors.inputs import open_inputs, open_rereadable_inputs
from driftline.connectors.outputs import JSON_LINES, OutputPlace, resolve_checked_output
from driftline.connectors.registry import scheme_of
from driftline.connectors.sinks.lines import DEAD_LETTERS
from driftline.coordinator.coordinator import MISSING_AFTER_S
from driftline.deploy.commands.options import (
    LOGGING_OPTIONS,
    flow_options,
    logging_options,
    metrics_option,
)
from driftline.deploy.local.config import RunConfig, SenderRules, StartOptions
from driftline.deploy.local.directories.opening import current_nodes
from driftline.deploy.local.reference import run_reference_to
from driftline.deploy.local.report import RunReport
from driftline.deploy.local.run import run_flow
from driftline.deploy.roles.master import STALLED_AFTER_S
from driftline.deploy.runtime.config import Limits
from driftline.deploy.runtime.logs import restore_logging
from driftline.deploy.runtime.loop.heartbeat import SLOW_AFTER_S
from driftline.deploy.runtime.supervision.restarts import CRASHES_MAX
from driftline.engine.errors import FlowError
from driftline.engine.events import event_fields, log
from driftline.engine.flow.loading import load_flow
from driftline.engine.policy import Policy, get_policy
from driftline.engine.snapshots.savepoint import open_savepoint
from driftline.engine.snapshots.savepoint_mapping import MappingOptions
from driftline.engine.sources.record import RecordFormat
from driftline.engine.ui.consoles import as_words
from driftline.engine.ui.options import (
    FORMAT_OPTIONS,
    FiniteRange,
    flow_argument,
    inputs_option,
    json_option_with,
    refuse_options,
    refuse_other_options,
)
from driftline.engine.ui.results import write_json

REFERENCE_OPTIONS = (
    "--reference", "--input", "--output", "--on-error", *FORMAT_OPTIONS, *LOGGING_OPTIONS, "--json",
)  # fmt: skip
"""Options allowed with --reference."""


@click.command()
@flow_argument
@inputs_option("An input, see above. Any number of times.")
@click.option(
    "--output", required=True, metavar="OUTPUT",
    help="Directory for the outputs, one JSON object a line; lmdb:DIR; or the address of a sink.",
)  # fmt: skip
@flow_options
@click.option("--state", type=click.Path(path_type=Path, resolve_path=True), metavar="DIR",
              help="Directory of snapshots and run metadata; needed if OUTPUT is not a directory.  "
              "[default: OUTPUT/.driftline/state]",
              )  # fmt: skip
@click.option("--fresh", is_flag=True,
              help="Start from the beginning: first remove the state and the outputs of the "
              "earlier run.",
              )  # fmt: skip
@click.option("--kill-every", type=FiniteRange(0.1), metavar="S",
              help="Kill -9 a random node or the master every S seconds, as a test, until a drain "
              "is requested. The next kill waits until the run has made progress.",
              )  # fmt: skip
@click.option("--missing-after", default=MISSING_AFTER_S, show_default=True, metavar="S",
              type=FiniteRange(1),
              help="Seconds of silence after which a process is reported as missing. After max(S, "
              "10) more seconds of silence, a node or master is killed and restarted.")  # fmt: skip
@click.option("--stalled-after", default=STALLED_AFTER_S, show_default=True, metavar="S",
              type=FiniteRange(1),
              help="Seconds without progress, while no node is busy, after which the run recovers "
              "from its last snapshot, as if a message was lost.",
              )  # fmt: skip
@click.option("--slow-after", default=SLOW_AFTER_S, show_default=True, metavar="S",
              type=FiniteRange(0.1),
              help="Seconds that a function may run before a warning names it.")  # fmt: skip
@click.option("--max-crashes", default=CRASHES_MAX, show_default=True, type=click.IntRange(1),
              help="Number of crashes of one process, without progress of the run, after which "
              "the run fails. Kills by --kill-every do not count.",
              )  # fmt: skip
@metrics_option(
    "Serve metrics for Prometheus, /healthz and /readyz: this process at PORT, the master at "
    "PORT+1, node 0 at PORT+2, node 1 at PORT+3, ..."
)
@click.option("--let-anyone-send", is_flag=True,
              help="Accept tcp:// records from other machines without keys: any client can send "
              "records, under the name of any producer.")  # fmt: skip
@click.option("--keys", type=click.Path(path_type=Path, exists=True, resolve_path=True),
              metavar="DIR", help="Directory of keys made by `driftline keys`, or the key file of "
              "this host: only producers with a right to the source can send to a tcp:// input.",
              )  # fmt: skip
@click.option("--reference", is_flag=True,
              help="Use the reference interpreter instead: this process does everything, "
              "one element after the other.")  # fmt: skip
@logging_options
@json_option_with(ended_by=None)
def run(
    console: Console,
    flow: str,
    inputs: tuple[str, ...],
    output: str,
    nodes: int | None,
    policy_name: str,
    ordering: str,
    snapshot_interval_ms: int,
    state: Path | None,
    dead_letters: bool,
    record_format: RecordFormat,
    start: Path | None,
    drop: tuple[str, ...],
    rename: tuple[tuple[str, str], ...],
    fresh: bool,
    accept_changed_code: bool,
    max_in_flight: int | None,
    kill_every: float | None,
    missing_after: float,
    stalled_after: float,
    slow_after: float,
    max_crashes: int,
    metrics: str,
    let_anyone_send: bool,
    keys: Path | None,
    reference: bool,
    json_file: Path | None,
) -> None:
    """Run FLOW over its inputs, and write its outputs to a directory.

    FLOW is a module or a .py file, for example `driftline.index`, the inverted index. If it holds
    several flows, add :NAME, the name of a Flow, or of a function that returns one. After an
    interruption the same command resumes the run.

    An INPUT is a file (JSON lines, CSV, text, Wikimedia XML; .gz, .bz2, .xz and .zst of these), a
    pattern such as 'logs/*.jsonl', or a directory with such files. Several files are read one after
    the other; those of a pattern or a directory in the order of their names. SOURCE=INPUT gives the
    input to that source. Without SOURCE=, a flow with one source reads all inputs; a flow with
    several sources needs one input for each, in the order in which it declares them. A run keeps
    its inputs: to read other files, start another run with its own --output. A file may grow
    between two calls.

    The input tcp://127.0.0.1:5555 receives records from producers on this machine at this address;
    tcp://*:5555 receives them from other machines, and needs --keys, or --let-anyone-send.

    The input `-` is standard input, as JSON lines; `-.txt` reads lines of text. Records are stored
    in the state directory before they are used. After an interruption, give the same command the
    same stream again, from its beginning: stored records are compared and skipped, so none is lost
    and none counts twice.

    An OUTPUT is a directory, lmdb:DIR, or the address of a sink: python:FILE.py:NAME for a sink of
    your own, or a scheme of a connector that is installed.
    """
    loaded = load_flow(flow)
    restore_logging()
    resolved_output = resolve_checked_output(output, state)
    directory = Path(realpath(resolved_output.directory))
    resolved_output = replace(resolved_output, directory=directory)
    policy = get_policy(policy_name, ordering)
    if reference:
        refuse_other_options(
            REFERENCE_OPTIONS,
            "with --reference: it is one process without nodes, policy or state, which writes "
            "the outputs that a run must have",
        )
        if scheme_of(resolved_output.address) != JSON_LINES:
            raise FlowError(f"{output}: --reference writes a directory of JSON lines")
        files = open_rereadable_inputs(loaded, inputs, record_format, "--reference")
        report = run_reference_to(loaded, files, directory, dead_letters)
    else:
        if keys is not None:
            refuse_options(["--let-anyone-send"], "with --keys: only producers with a key can send")
        state = state or directory / ".driftline" / "state"
        config = RunConfig(
            flow,
            open_inputs(loaded, inputs, record_format),
            resolved_output,
            nodes or (1 if fresh else current_nodes(state)),
            policy,
            snapshot_interval_ms / 1000,
            state,
            dead_letters,
            max_in_flight,
            kill_every,
            StartOptions(open_savepoint(start), MappingOptions(drop, rename))
            if start is not None
            else None,
            Limits(missing_after, stalled_after, slow_after, max_crashes),
            sender_rules=SenderRules(
                let_anyone_send, keys, tuple(source.name for source in loaded.sources)
            ),
            accept_changed_code=accept_changed_code,
            fresh=fresh,
            metrics=metrics,
        )
        report = run_flow(loaded, config, console)
    always_shown = {"records", "outputs"} | ({"kills"} if kill_every else set())
    _report(report, resolved_output, policy, json_file, always_shown)


def _report(
    report: RunReport,
    output: OutputPlace,
    policy: Policy,
    json_file: Path | None,
    always_shown: Collection[str],
) -> None:
    """Log the figures of the run, and write them as JSON.

    `always_shown`: names of figures that are logged even if they are 0. Raises SystemExit with
    status 128 + the signal's number if a signal has drained the run.
    """
    signal, figures = report.ended_by, report.as_json()
    signal_name = None if signal is None else signal.name
    write_json(json_file, figures | {"ended_by": signal_name, "error": None})
    ending = "has finished"
    if signal is not None:
        restart = "resumes from here" if policy.replay else "begins with an empty state"
        ending = f"was drained by {signal_name} (the same command {restart})"
    first = "records", "bad_records", "outputs", "dead_letters"
    ordered = {name: figures[name] for name in (*first, *figures)}
    if report.bad_records:
        ordered = {"valid_records": ordered.pop("records")} | ordered
    shown = {name: value for name, value in ordered.items() if value or name in always_shown}
    shown["seconds"] = round(report.seconds, 1)
    log.info(
        "the run %s; this call: %s; outputs: %s",
        *(ending, as_words(shown), output.directory if output.is_directory else output.address),
        extra=event_fields("run-ended", **figures),
    )
    if report.bad_records or report.dead_letters:
        directory = str(output.directory / DEAD_LETTERS)
        places = [directory] * bool(report.bad_records)
        places += [output.dead_letter_location] * bool(report.dead_letters)
        log.warning(
            "records that were set aside are in %s",
            " and ".join(dict.fromkeys(places)),
            extra=event_fields("dead-letters-written", directory=directory),
        )
    if signal is not None:
        raise SystemExit(128 + signal)
