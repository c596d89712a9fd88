"""The public names of Driftline, and the `driftline` command.

    from driftline import Flow, MapState

Public names and commands are imported at first use, so `driftline --help` and
``from driftline import Flow`` are quick.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

    from driftline.api.flowtest import FlowTest
    from driftline.api.outputs import RunSummary
    from driftline.api.run import run
    from driftline.api.simulate import SimulationReport, simulate
    from driftline.deploy.producer import Producer
    from driftline.engine.operators.aggregates import (
        Aggregate,
        Collect,
        Count,
        CountDistinct,
        First,
        Last,
        Max,
        Mean,
        Min,
        Sum,
        Top,
    )
    from driftline.engine.operators.context import Context
    from driftline.engine.operators.count_windows import CountWindow
    from driftline.engine.operators.iterate import Again
    from driftline.engine.operators.sketches import ApproximateCountDistinct, Quantile
    from driftline.engine.operators.timers import TimedContext, Timer
    from driftline.engine.operators.windows import Days, Hopping, Session, Tumbling, Windows
    from driftline.engine.errors import (
        DriftlineError,
        FlowError,
        FunctionFailed,
        InputError,
        PayloadError,
        SimulationFailed,
        StateMismatch,
        Unavailable,
    )
    from driftline.engine.flow.flow import Flow
    from driftline.engine.flow.streams import KeyedStream, Stream, WindowedStream
    from driftline.engine.wire.bundles import Item
    from driftline.engine.reference import run_reference
    from driftline.engine.state.managed import ListState, MapState, ReducingState, ValueState
    from driftline.index.client.async_client import AsyncIndexClient
    from driftline.index.client.client import IndexClient
    from driftline.index.client.producer import IndexProducer

__all__ = [
    "Again",
    "Aggregate",
    "ApproximateCountDistinct",
    "AsyncIndexClient",
    "Collect",
    "Context",
    "Count",
    "CountDistinct",
    "CountWindow",
    "Days",
    "DriftlineError",
    "First",
    "Flow",
    "FlowError",
    "FlowTest",
    "FunctionFailed",
    "Hopping",
    "IndexClient",
    "IndexProducer",
    "InputError",
    "Item",
    "KeyedStream",
    "Last",
    "ListState",
    "MapState",
    "Max",
    "Mean",
    "Min",
    "PayloadError",
    "Producer",
    "Quantile",
    "ReducingState",
    "RunSummary",
    "Session",
    "SimulationFailed",
    "SimulationReport",
    "StateMismatch",
    "Stream",
    "Sum",
    "TimedContext",
    "Timer",
    "Top",
    "Tumbling",
    "Unavailable",
    "ValueState",
    "WindowedStream",
    "Windows",
    "main",
    "run",
    "run_reference",
    "simulate",
]

MODULES = {
    "driftline.api.flowtest": ["FlowTest"],
    "driftline.api.outputs": ["RunSummary"],
    "driftline.api.run": ["run"],
    "driftline.api.simulate": ["SimulationReport", "simulate"],
    "driftline.deploy.producer": ["Producer"],
    "driftline.engine.operators.aggregates": [
        "Aggregate",
        "Collect",
        "Count",
        "CountDistinct",
        "First",
        "Last",
        "Max",
        "Mean",
        "Min",
        "Sum",
        "Top",
    ],
    "driftline.engine.operators.context": ["Context"],
    "driftline.engine.operators.count_windows": ["CountWindow"],
    "driftline.engine.operators.iterate": ["Again"],
    "driftline.engine.operators.sketches": ["ApproximateCountDistinct", "Quantile"],
    "driftline.engine.operators.timers": ["TimedContext", "Timer"],
    "driftline.engine.operators.windows": ["Days", "Hopping", "Session", "Tumbling", "Windows"],
    "driftline.engine.errors": [
        "DriftlineError",
        "FlowError",
        "FunctionFailed",
        "InputError",
        "PayloadError",
        "SimulationFailed",
        "StateMismatch",
        "Unavailable",
    ],
    "driftline.engine.flow.flow": ["Flow"],
    "driftline.engine.flow.streams": ["KeyedStream", "Stream", "WindowedStream"],
    "driftline.engine.reference": ["Item", "run_reference"],
    "driftline.engine.state.managed": ["ListState", "MapState", "ReducingState", "ValueState"],
    "driftline.index.client.async_client": ["AsyncIndexClient"],
    "driftline.index.client.client": ["IndexClient"],
    "driftline.index.client.producer": ["IndexProducer"],
}
"""Module -> its public names."""

COMMANDS = {
    "agent": (
        "deploy.commands.agent:agent",
        "Run the processes of a cluster on this host.",
    ),
    "cancel": ("deploy.commands.flows:cancel", "Cancel a flow in a cluster, without a drain."),
    "remove": ("deploy.commands.flows:remove", "Remove a flow that has ended or is damaged from a cluster."),
    "status": ("deploy.commands.status:status", "Show the agents and flows of a cluster."),
    "stop": ("deploy.commands.flows:stop", "Drain and stop a flow in a cluster."),
    "rescale": ("deploy.commands.flows:rescale", "Change the number of nodes of a flow in a cluster."),
    "submit": ("deploy.commands.submit:submit_flow", "Run a flow in a cluster."),
    "bench": ("bench.commands:bench", "Benchmark latency, throughput, recovery and `driftline serve`."),
    "graph": ("deploy.graph:graph", "Print a flow's graph as text or DOT."),
    "keys": ("deploy.commands.keys:keys", "Make authentication keys for hosts, producers and consumers."),
    "new": ("deploy.commands.new:new", "Make a folder with a flow of your own, and its test."),
    "run": ("deploy.commands.run:run", "Run a flow on this machine."),
    "serve": ("index.commands.serve:serve", "Serve a search index, or a flow's values, over HTTP."),
    "spark": ("pipeline.commands:spark", "Run and audit flows on Spark; make test inputs."),
    "savepoint": ("deploy.commands.savepoint:savepoint", "Write the last snapshot of a flow as a savepoint."),
    "verify": ("index.commands.verify:verify", "Check the outputs and the state of a run."),
    "simulate": (
        "simulation.command:simulate",
        "Test a flow in simulated clusters with injected faults.",
    ),
    "zookeeper": (
        "deploy.commands.zookeeper:zookeeper",
        "Run ZooKeeper on this machine, for development.",
    ),
}
"""Command -> (module and function, line in `driftline --help`)."""

EXTRAS = {"bench": "bench", "index": "index", "pipeline": "spark"}
"""Package of Driftline -> the extra that installs its dependencies."""


if not TYPE_CHECKING:  # type checkers see only the imports above

    def __getattr__(name: str) -> object:
        for module, names in MODULES.items():
            if name in names:
                try:
                    return getattr(importlib.import_module(module), name)
                except ModuleNotFoundError as error:
                    if not module.startswith("driftline.index.client."):
                        raise
                    needs = f"{name} needs {error.name}: pip install 'driftline[client]'"
                    raise ImportError(needs) from None
        raise AttributeError(f"driftline has no {name!r}")


def main() -> None:
    """Run the command line, and exit. For an expected error, print one sentence.

    The exit status is 1 after such an error, 2 after wrong usage.
    """
    try:
        _fix_hash_seed()
        _hide_working_directory()
        status = _status()
    except KeyboardInterrupt:  # during imports; later click handles it
        print("interrupted", file=sys.stderr)
        status = 130
    sys.exit(status if isinstance(status, int) else 0)


def _status() -> object:
    """Run the command line. Return the exit status; any value but an int stands for 0."""
    from driftline.engine.errors import DriftlineError
    from driftline.engine.ui.results import sentence_of
    from driftline.engine.texts import print_error

    try:
        return _group().main(standalone_mode=False)
    except DriftlineError as error:
        print_error(str(error))
        return 1
    except BrokenPipeError:
        return 141
    except OSError as error:
        print_error(sentence_of(error))
        return 1
    except Exception as error:
        import click

        if isinstance(error, click.exceptions.Abort):
            raise KeyboardInterrupt from None
        if isinstance(error, click.ClickException):
            from driftline.deploy.commands.config_file import with_origin
            from driftline.engine.ui.options import write_usage_error

            error_with_origin = with_origin(error)
            error_with_origin.show()
            write_usage_error(error_with_origin)
            return error.exit_code
        raise


def _fix_hash_seed() -> None:
    """Restart this process with PYTHONHASHSEED=0, unless the user has set a seed.

    The order of a set of strings depends on the seed. A function that iterates over a set must see
    the same order in the reference interpreter, on every node, and in every replay.
    """
    if "PYTHONHASHSEED" not in os.environ:
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _hide_working_directory() -> None:
    """Remove the working directory from `sys.path`, so that its files hide no other modules.

    Remove a checkout of Driftline, too (`hide_checkout`).
    """
    from driftline.deploy.runtime.supervision.child import hide_checkout

    with suppress(FileNotFoundError):  # the working directory was removed
        sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]
    hide_checkout()


def _group() -> click.Group:
    import click

    from driftline.deploy.commands.config_file import config_option, apply_settings

    class Lazy(click.Group):
        """Group that imports a command only when that command is called."""

        def list_commands(self, ctx: click.Context) -> list[str]:
            return sorted(COMMANDS)

        def resolve_command(
            self, ctx: click.Context, args: list[str]
        ) -> tuple[str | None, click.Command | None, list[str]]:
            name = args[0]
            if name not in COMMANDS and not name.startswith("-"):
                from driftline.engine.texts import did_you_mean

                ctx.fail(f"No such command {name!r}{did_you_mean(name, COMMANDS)}.")
            return super().resolve_command(ctx, args)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            if cmd_name not in COMMANDS:
                return None
            module, _, name = COMMANDS[cmd_name][0].partition(":")
            try:
                loaded = importlib.import_module(f"driftline.{module}")
            except ModuleNotFoundError as error:
                extra = EXTRAS.get(module.partition(".")[0])
                if extra is None or (error.name or "driftline").startswith("driftline"):
                    raise
                package = str(error.name).partition(".")[0]
                raise click.ClickException(
                    f"driftline {cmd_name} needs {package}: pip install 'driftline[{extra}]'"
                ) from None
            command: click.Command = getattr(loaded, name)
            apply_settings(ctx, command, cmd_name)
            return command

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            with formatter.section("Commands"):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])

    def show_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
        if asked:
            click.echo(f"driftline {_version()}")
            ctx.exit()

    version = click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=show_version,
        help="Show the version and exit.",
    )  # fmt: skip
    help_text = (
        "Driftline: exactly-once stream processing whose outputs never wait for a snapshot."
    )
    settings = {"max_content_width": 100}
    params = [config_option(COMMANDS), version]
    return Lazy(name="driftline", help=help_text, params=params, context_settings=settings)


def _version() -> str:
    """Return the version in this checkout's pyproject.toml, or else of the installed package."""
    import tomllib
    from importlib.metadata import version
    from pathlib import Path

    file = Path(os.path.abspath(__file__)).parents[1] / "pyproject.toml"
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"] if file.is_file() else {}
    if project.get("name") == "driftline":
        return str(project["version"])
    return version("driftline")
