"""The command `driftline new`: a folder with a flow, its test, an input, and how to run it."""

from __future__ import annotations

import keyword
import re
import shlex
import sys
from pathlib import Path

import click

from driftline.deploy.commands.template import FLOW, README, RUN, SAMPLE, TEST, TRY
from driftline.engine.durable import make_directory
from driftline.engine.errors import Unavailable

TAKEN = {"driftline", "conftest", "pytest"} | sys.stdlib_module_names
"""Modules that the flow's would hide, or be hidden by."""


@click.command()
@click.argument("folder", metavar="NAME", type=click.Path(path_type=Path))
def new(folder: Path) -> None:
    """Begin a flow: write a folder NAME with a flow, its test, a small input and a README.

    The flow is NAME/NAME.py; what may not be in the name of a module becomes `_`. What is there
    already is never written over.
    """
    module = module_name(folder.name)
    folder = folder.with_name(module)
    for path, what in begin(folder, module).items():
        click.echo(f"{path}: {what}")
    shown = shlex.quote(str(folder))
    click.echo("Run it, and test it:")
    click.echo("  " + RUN.format(folder=shown, module=module))
    click.echo("  " + TRY.format(folder=shown))


def module_name(name: str) -> str:
    """A folder's name as that of a module. Raises UsageError."""
    module = re.sub(r"\W+", "_", name)
    if not module.isidentifier() or not module.strip("_"):
        raise click.UsageError(
            f"{name!r} cannot be made the name of a module, which begins with a letter"
        )
    if keyword.iskeyword(module) or module.lower() in TAKEN:
        raise click.UsageError(f"{name!r} is Python's, or another module's: choose another name")
    return module


def begin(folder: Path, module: str) -> dict[Path, str]:
    """Write the files. Returns what each of them is; raises Unavailable if there are any."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Unavailable(f"{folder} is there already: give another name, or remove it")
    names = {"module": module, "title": module.strip("_").replace("_", " ")}
    written = {
        f"{module}.py": ("the flow", FLOW.format(**names)),
        f"test_{module}.py": ("its test", TEST.format(**names)),
        "sample.jsonl": ("records to try it with", SAMPLE),
        "README.md": ("what to run", README.format(**names)),
    }
    make_directory(folder)
    for name, (_, text) in written.items():
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(text)
    return {folder / name: what for name, (what, _) in written.items()}
