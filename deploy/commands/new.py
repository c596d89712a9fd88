"""Command `driftline new`: make a folder with a flow, its test, an input and a README."""

from __future__ import annotations

import keyword
import re
import shlex
import sys
from pathlib import Path

import click

from driftline.engine.durable import make_directory
from driftline.engine.errors import Unavailable

LIBRARIES = {
    *("click", "filelock", "kazoo", "lmdb", "msgpack", "msgspec", "prometheus_client", "rich"),
    *("zmq", "zstandard"),
}
"""Modules of other packages that Driftline imports."""

RESERVED_NAMES = {"driftline", "conftest", "pytest"} | LIBRARIES | sys.stdlib_module_names
"""Module names that a flow cannot have: one of the two modules would hide the other."""


@click.command()
@click.argument("folder", metavar="NAME", type=click.Path(path_type=Path))
def new(folder: Path) -> None:
    """Make a folder NAME with a flow of your own, its test, a small input and a README.

    The flow is in NAME/NAME.py. Characters that the name of a module cannot have become `_`. The
    folder must be new or empty: no file is ever overwritten.
    """
    module = module_name(folder.name)
    folder = folder.with_name(module)
    for path, description in write_project(folder, module).items():
        click.echo(f"{path}: {description}")
    quoted = shlex.quote(str(folder))
    click.echo("Run it, and test it (with pytest, `pip install pytest`):")
    click.echo("  " + RUN.format(folder=quoted, module=module))
    click.echo("  " + TRY.format(folder=quoted))


def module_name(name: str) -> str:
    """Return the module name for a folder of this name. Raises UsageError if there is none."""
    module = re.sub(r"\W+", "_", name)
    if not module.isidentifier() or module.startswith("__") or not module.strip("_"):
        raise click.UsageError(
            f"{name!r} cannot be the name of a module, which begins with a letter or `_`"
        )
    if keyword.iskeyword(module) or module.lower() in RESERVED_NAMES:
        raise click.UsageError(
            f"{name!r} is a Python keyword or the name of another module: choose another name"
        )
    return module


def write_project(folder: Path, module: str) -> dict[Path, str]:
    """Write the files of a project into a new or empty folder. Return file -> description.

    `module`: name of the flow's module. Raises Unavailable if the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Unavailable(f"{folder} already exists; choose another name, or remove it")
    names = {"module": module, "title": module.strip("_").replace("_", " ")}
    files = {
        f"{module}.py": ("the flow", FLOW.format(**names)),
        f"test_{module}.py": ("its test", TEST.format(**names)),
        "sample.jsonl": ("records to try it with", SAMPLE),
        "README.md": ("what to run", README.format(**names)),
    }
    make_directory(folder)
    for name, (_, text) in files.items():
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(text)
    return {folder / name: description for name, (description, _) in files.items()}


FLOW = '''\
"""Counts words: for each word of each record, how often it has occurred so far."""

from typing import TypedDict

from driftline import Flow, ReducingState


class Line(TypedDict):
    """A record: a line of text."""

    text: str


def words(line: Line) -> list[str]:
    """The words of a record's text."""
    return line["text"].lower().split()


def itself(word: str) -> str:
    """The key: equal words share a state."""
    return word


def add(total: int, added: int) -> int:
    """The new value of the state."""
    return total + added


def count(word: str, total: ReducingState[int]) -> tuple[str, int]:
    """The word, and how often it has occurred so far."""
    return word, total.add(1)


flow = Flow("{title}")
(
    flow.source("lines", of=Line)
    .flat_map(words)
    .key_by(itself)
    .scan(count, ReducingState("total", add), fields=("word", "count"))
    .sink("counts")
)
'''

TEST = '''\
"""Tests the flow with the reference interpreter, and on two nodes of which one is killed."""

from driftline import FlowTest, run_reference

from {module} import flow


def test_words_are_counted_in_the_order_of_the_records() -> None:
    lines = [{{"text": "a B a"}}, {{"text": "b"}}]
    items = list(run_reference(flow, [lines]))
    assert [item.value for item in items] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_no_count_is_lost_when_a_node_is_killed() -> None:
    with FlowTest(flow, nodes=2) as test:
        test.send({{"text": "a b"}})
        test.kill("node-0")
        test.send({{"text": "a"}})
        assert test.outputs("counts") == [("a", 1), ("b", 1), ("a", 2)]
'''

SAMPLE = """\
{"text": "the ship left the harbour"}
{"text": "the harbour was quiet"}
{"text": "a quiet ship"}
"""

RUN = "driftline run {folder}/{module}.py --input {folder}/sample.jsonl --output {folder}/out"
TRY = "python -m pytest {folder}"

README = """\
# {title}

- Run it: `driftline run {module}.py --input sample.jsonl --output out` writes `out/counts-0.jsonl`.
- Test it: `python -m pytest`; under faults: `driftline simulate {module}.py --input sample.jsonl`.
- Print its graph: `driftline graph {module}.py`.
"""
