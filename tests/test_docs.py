"""The documentation is correct: it covers all names and commands, and its examples work."""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

import driftline
from driftline import Flow, run
from driftline.connectors.sinks import NO_BUNDLE, Consumer, LastStored
from driftline.engine import errors
from driftline.engine.errors import StateMismatch
from tests.connectors.sinks.bundles import BARRIER, GROUPS, items, json_lines, stream

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TEXTS = [*PAGES, *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"))]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`(driftline [^`]+)`")
OPTION = re.compile(r"`(--[a-z-]+)[^`]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
REFERENCE = re.compile(r"^- \[`(\S+)`\]\((\S+)\) <!-- :::.*-->$", re.MULTILINE)
MEMBERS = re.compile(r"^- \[`(\S+)`\].* <!-- ::: .*\bmembers: \[(.*?)\]\S* -->$", re.MULTILINE)


def blocks(path: Path, language: str = "") -> list[str]:
    """Return the blocks of code of a page."""
    return [found[2] for found in FENCE.finditer(path.read_text()) if found[1] == language]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# The site.


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the documentation as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    build = ["-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run([sys.executable, *build], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_reference_covers_all_public_names(site: Path) -> None:
    pages = {path.stem: path.read_text() for path in (site / "reference").glob("*.html")}
    there = set(re.findall(r' id="([^"]+)"', "".join(pages.values())))
    public = {f"driftline.{name}" for name in driftline.__all__}
    public |= {
        f"driftline.{name}" if name in driftline.__all__ else f"driftline.engine.errors.{name}"
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.DriftlineError)
    }
    public |= {
        f"{name}.{member.strip()}"
        for path in PAGES
        for name, members in MEMBERS.findall(path.read_text())
        for member in members.split(",")
    }
    public |= {words.replace(" ", "-") for words, _ in commands()}
    assert sorted(public - there) == []
    for words, command in commands():
        section = pages["commands"].partition(f' id="{words.replace(" ", "-")}"')[2]
        documented = re.split(r"<h[23] ", section)[0]
        for option in options_of(command) - {"--help"}:
            assert option in documented, f"{words} {option}"


def test_pages_are_complete_without_a_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.findall(r'(?:src|<link[^>]* href)="(?:https?:)?//[^"]*"', text), page
        assert "<blockquote>" not in text, f"{page}: indent examples (>>>) in docstrings by four"
        assert "<!-- :::" not in text, page
        assert "<!-- include" not in text, page


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_markdown_pages_are_readable_without_a_build(path: Path) -> None:
    """Links must also resolve in a checkout or on a code host, without a build."""
    text = FENCE.sub("", path.read_text())
    assert not re.findall(r"\{\{|^:::|\]\[", text, re.MULTILINE)
    for link in LINK.findall(re.sub("`[^`]+`", "", text)):
        target, _, anchor = link.partition("#")
        page = (path.parent / target).resolve() if target else path
        if "://" not in link:
            assert page.exists(), link
        if anchor.startswith("driftline."):
            assert anchor in dict(REFERENCE.findall(page.read_text())), link
    for name, file in REFERENCE.findall(text):
        defined = rf"^(?:class|def) {name.rpartition('.')[2]}\b"
        assert re.search(defined, (path.parent / file).read_text(), re.MULTILINE), name


@pytest.mark.parametrize("page", ["index.md", "getting-started.md"])
def test_shown_flow_equals_the_example(page: str) -> None:
    example = (ROOT / "examples" / "wordcount.py").read_text()
    assert blocks(ROOT / "docs" / page, "python")[0] == example


def test_links_of_an_included_file_are_relative_to_the_page() -> None:
    rewritten = runpy.run_path(str(ROOT / "docs/hooks.py"))["_rewritten"]
    page = ROOT / "docs" / "reference"
    assert rewritten("docs/driftline.svg", ROOT, page) == "../driftline.svg"
    assert rewritten("README.md", ROOT, page) == "../index.md"
    assert rewritten("docs/guarantees.md#policies", ROOT, page) == "../guarantees.md#policies"


# Commands.


@cache
def commands() -> list[tuple[str, click.Command]]:
    """Return every command, with its full name as words."""

    def beneath(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        if words != "driftline":
            yield words, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from beneath(f"{words} {name}", inner)

    return list(beneath("driftline", driftline._group()))


def options_of(command: click.Command) -> set[str]:
    """Return the long options of a command."""
    parameters = command.get_params(click.Context(command))
    names = {name for one in parameters for name in [*one.opts, *one.secondary_opts]}
    return {name for name in names if name.startswith("--")}


def called(line: str) -> tuple[click.Command | None, list[str]]:
    """Return the command that a line calls (None for driftline itself), and its arguments."""
    words = shlex.split(line, comments=True)
    known = dict(commands())
    for count in (3, 2):
        if command := known.get(" ".join(words[:count])):
            return command, words[count:]
    assert words[1:2] == ["COMMAND"] or words[1].startswith("-"), f"no such command: {line}"
    return None, words[1:]


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_commands_on_pages_parse(path: Path) -> None:
    for block in [*blocks(path), *blocks(path, "ini")]:
        for line in block.splitlines():
            line = re.sub(r"^(ExecStart=/\S+/|\.venv/bin/)driftline ", "driftline ", line)
            if line.startswith("driftline "):
                command, arguments = called(line)
                if command is not None and not isinstance(command, click.Group):
                    parser = command.make_parser(click.Context(command))
                    # Raises for an unknown option, or one without its value.
                    parser.parse_args(arguments)


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_named_commands_and_options_exist(path: Path) -> None:
    text = FENCE.sub("", path.read_text())
    assert set(OPTION.findall(text)) <= set().union(*(options_of(c) for _, c in commands()))
    for code in CODE.findall(text):
        command, arguments = called(code.replace("\n", " "))
        named = set(re.findall(r"--[a-z][a-z-]*", " ".join(arguments)))
        if command is not None:
            assert named <= options_of(command), code


def test_getting_started_commands_print_the_shown_output(tmp_path: Path) -> None:
    page = ROOT / "docs" / "getting-started.md"
    (tmp_path / "wordcount.py").write_text(blocks(page, "python")[0])
    typed = next(block for block in blocks(page) if "lines.jsonl" in block)
    shown = blocks(page)[blocks(page).index(typed) + 1]
    script = re.sub("^driftline ", f"{sys.executable} -m driftline ", typed, flags=re.MULTILINE)
    done = subprocess.run(
        ["bash", "-ec", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown


# Log events.

EVENT = re.compile(r"^\| `([a-z-]+)` \| ([a-z, ]+) \| (.*?) ?\| (.+) \|$", re.MULTILINE)
LOGGED_ELSEWHERE = {"log": set[str](), "print": set[str]()}
"""Events of lines without `event_fields`: those of other loggers, and printed text."""


def logged_events() -> tuple[dict[str, set[str]], set[str]]:
    """Return the events of the package with the fields that calls name, and repeated failures."""
    fields: dict[str, set[str]] = {**LOGGED_ELSEWHERE}
    failure_events = set()
    packages = {init.parent for init in ROOT.glob("*/__init__.py")} - {ROOT / "tests"}
    texts = (path.read_text() for package in packages for path in package.rglob("*.py"))
    for text in texts:
        if "engine.events import" not in text:
            continue
        for found in ast.walk(ast.parse(text)):
            match found:
                case ast.Call(ast.Name("event_fields"), [ast.Constant(str(event))], keywords):
                    named = {each.arg for each in keywords if each.arg is not None}
                    fields[event] = fields.get(event, set()) | named
                case ast.Call(ast.Name("FailureLog"), [ast.Constant(str(event))]):
                    failure_events.add(event)
                    fields.setdefault(event, set())
                case ast.Call(ast.Name("RateLimitedLog"), [ast.Constant(str(event)), *_]):
                    fields.setdefault(event, {"count", "reason"})
                case ast.ClassDef(bases=[ast.Name("RateLimitedLog")], body=body):
                    for call in ast.walk(ast.Module(body, [])):
                        match call:
                            case ast.Call(
                                ast.Attribute(attr="__init__"), [ast.Constant(str(event)), *_]
                            ):
                                fields.setdefault(event, set())
    return fields, failure_events


def test_every_log_event_is_in_the_table_with_its_fields() -> None:
    table = (ROOT / "docs/log-events.md").read_text().partition("## Exit statuses")[0]
    rows = {name: (level, cell) for name, level, cell, _ in EVENT.findall(table)}
    fields, failure_events = logged_events()
    assert list(rows) == sorted(rows)
    assert sorted(rows) == sorted(fields)
    assert {name for name, (level, _) in rows.items() if level == "failure"} == failure_events
    for name, (_, cell) in rows.items():
        assert fields[name] <= set(re.findall("`([^`]+)`", cell)), name


# Python, and the licence.


def run_blocks(path: Path) -> dict[str, object]:
    """Execute the blocks of a page in order, run tests in them, and return the defined names."""
    names: dict[str, object] = {"__name__": path.stem}
    for block in blocks(path, "python"):
        code = compile(block, str(path), "exec")
        if "tcp://" not in block:  # there is no peer
            exec(code, names)
    for name, value in names.items():
        if name.startswith("test_"):
            assert callable(value)
            value()
    return names


SERVED = ROOT / "docs/reference/client.md"
"""Examples that need a service; tests/index/client runs them."""

SERVED_TOO = ROOT / "docs/howto-service.md"
"""The same, by tests/index/commands."""


@pytest.mark.parametrize(
    "path",
    [p for p in PAGES if blocks(p, "python") and p not in (SERVED, SERVED_TOO)],
    ids=name_of,
)
def test_python_blocks_on_pages_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    run_blocks(path)


def test_shown_source_can_be_replayed() -> None:
    squares = run_blocks(ROOT / "docs/reference/sources.md")["Squares"]
    assert isinstance(squares, type)
    everything = list(squares(5).read(1))
    assert everything == [(n, {"square": n * n}) for n in range(1, 6)]
    assert list(squares(5).read(4)) == everything[3:]
    assert squares(5).identity() == squares(5).identity() != squares(6).identity()


def test_live_source_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = run_blocks(ROOT / "docs/reference/sources.md")["Orders"]
    assert isinstance(orders, type)
    monkeypatch.chdir(tmp_path)
    Path("orders.jsonl").write_text('{"n": 1}\n{"n": 2}\nend\n')
    flow = Flow("orders")
    flow.source("orders").sink()
    assert [item.value for item in run(flow, {"orders": orders()})] == [{"n": 1}, {"n": 2}]


def test_shown_consumer_stores_everything_once(tmp_path: Path) -> None:
    made = run_blocks(ROOT / "docs/reference/sinks.md")["SqliteConsumer"]
    assert isinstance(made, type)

    def opened() -> Consumer:
        consumer: Consumer = made(str(tmp_path / "outputs.db"))
        return consumer

    bundles = stream(6)
    for number, bundle in enumerate(bundles):
        consumer = opened()
        before = bundles[number - 1] if number else None
        last = consumer.last(BARRIER, GROUPS)
        assert last == (
            NO_BUNDLE if before is None else LastStored(before.t_last, before.checksum, ())
        )
        consumer.deliver(bundle)
        consumer.deliver(bundles[0])
        consumer.close()
    consumer = opened()
    with pytest.raises(StateMismatch, match="other key groups"):
        consumer.last(BARRIER, (0, 127))
    rows = vars(consumer)["_db"].execute("SELECT label, sink FROM outputs").fetchall()
    consumer.close()
    assert rows == [(str(list(item.label)), item.sink) for item in items(bundles)]


def test_merge_example_restores_label_order(tmp_path: Path) -> None:
    merged = run_blocks(ROOT / "docs/reference/sinks.md")["merged"]
    assert callable(merged)
    for barrier, own in (("barrier-0", stream(6)[::2]), ("barrier-1", stream(6)[1::2])):
        consumer = json_lines(tmp_path, barrier)
        for bundle in own:
            consumer.deliver(bundle)
        consumer.close()
    expected = [list(item.label) for item in items(stream(6)) if item.sink == 0]
    assert [line["t"] for line in merged(tmp_path, "counts")] == expected


APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""Checksum of the text as its authors publish it."""


def test_licence_is_complete_and_packaged() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (about["license"], about["license-files"]) == ("Apache-2.0", ["LICENSE"])
