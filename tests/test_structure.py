"""The laws of the house: what may import what, and what protocol code may not touch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LAYERS = (
    {"engine"},
    {"acker", "barrier", "coordinator", "pipeline"},
    {"deploy"},
    {"serve"},
    {"index"},
    {"bench"},
    {"driftline"},
)
"""From the ground up; the packages of one layer do not know each other."""

LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}

ROOMS = {
    "engine": (
        {
            "labels",
            "moments",
            "counted",
            "visible",
            "mending",
            "errors",
            "events",
            "exits",
            "interrupts",
        },
        {"histogram", "stopwatch"},
        {"durable", "lmdb_pages", "locks", "policy", "raised"},
        {"lmdbs"},
        {"wire"},
        {"keygroups"},
        {"state"},
        {"flow"},
        {"order"},
        {"compared"},
        {"snapshots"},
        {"sources", "sinks"},
        {"reference"},
        {"ui"},
    ),
    "pipeline": (
        {"spark"},
        {"running"},
        {"audit", "corpus", "latency", "microbatch", "states"},
        {"commands"},
    ),
    "deploy": (
        {"work"},
        {"parties"},
        {"node"},
        {"keys"},
        {"host"},
        {"run", "zookeeper"},
        {"cluster"},
        {"graph"},
        {"simulation"},
        {"api"},
        {"commands", "producer"},
    ),
    "serve": (
        {"errors"},
        {"journal"},
        {"views"},
        {"hosting"},
        {"gateway"},
        {"http"},
        {"running"},
        {"http"},
    ),
    "index": (
        {"documents", "flow"},
        {"postings", "query"},
        {"search"},
        {"watches"},
        {"searcher"},
        {"http", "client"},
        {"serving"},
        {"commands"},
    ),
    "bench": (
        {"measuring"},
        {"systems", "load"},
        {"report"},
        {"experiments"},
        {"commands"},
    ),
}
"""Within a package, from the ground up."""

DRIVERS = (
    "coordinator/registry.py",
    "coordinator/succession.py",
    "coordinator/zookeeper.py",
    "deploy/api",
    "deploy/cluster",
    "deploy/commands",
    "deploy/host",
    "deploy/keys",
    "deploy/producer.py",
    "deploy/run",
    "deploy/simulation",
    "deploy/zookeeper",
    "engine/durable.py",
    "engine/flow/context.py",  # generators of random numbers that labels seed
    "engine/exits.py",
    "engine/interrupts.py",
    "engine/lmdbs.py",
    "engine/lmdb_pages.py",
    "engine/locks.py",
    "engine/moments.py",  # the calendar, for what people read
    "engine/sinks",
    "engine/sources",
    "engine/ui",
    "serve/gateway",
    "serve/hosting/children.py",
    "serve/hosting/journal_process.py",
    "serve/hosting/lines.py",
    "serve/hosting/processes.py",
    "serve/hosting/view_process.py",
    "serve/http",
    "serve/journal/consumer.py",
    "serve/journal/segments.py",
    "serve/running",
    "serve/views/checkpoint.py",
)
"""What touches sockets, clocks, threads and disks. Everything else is handed messages and the time,
and gives messages and jobs."""

FORBIDDEN = {
    "asyncio",
    "datetime",
    "kazoo",
    "os",
    "random",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "subprocess",
    "threading",
    "time",
    "uuid",
    "zmq",
}

LINES_MAX = 450


def _files(*where: str) -> list[Path]:
    found: list[Path] = []
    for name in where:
        path = ROOT / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.is_file() else []
    return found


OURS = _files(*(name for layer in LAYERS[:-1] for name in sorted(layer)))
DECIDING = [
    path
    for path in _files("engine", "acker", "barrier", "coordinator", "deploy", "serve")
    if path not in _files(*DRIVERS)
]
OURS += [ROOT / "driftline" / "__init__.py", ROOT / "driftline" / "__main__.py"]
TESTS = _files("tests")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _imports(nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, "imports name the whole path"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _at_import_time(node: ast.AST) -> Iterator[ast.AST]:
    """Everything that runs when a module is loaded: no function bodies, nothing for types only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from _at_import_time(child)


def _named(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return name if name.partition(".")[0] == "driftline" else f"driftline.{name}"


def _package(name: str) -> str:
    """The package of ours that a module is in; `driftline` for the face, and empty for others'."""
    first, _, rest = name.partition(".")
    package = rest.partition(".")[0]
    return "" if first != "driftline" else package if package in LEVEL else first


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", OURS, ids=_id)
def test_imports_go_only_downwards(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0]
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module != "driftline":
            modules = [str(node.module)]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"driftline.{alias.name}" for alias in node.names]
        else:
            continue
        for other in filter(None, map(_package, modules)):
            assert other == own or LEVEL[other] < LEVEL[own], f"{own} must not know {other}"


@pytest.mark.parametrize("package", ROOMS)
def test_imports_go_only_downwards_within_a_package(package: str) -> None:
    levels = {room: level for level, rooms in enumerate(ROOMS[package]) for room in rooms}
    for path in _files(package):
        own = path.relative_to(ROOT / package).parts[0].removesuffix(".py")
        if own == "__init__":
            continue  # the package's face names what is in its rooms
        for name in _imports(ast.walk(_tree(path))):
            first, _, rest = name.partition(f"driftline.{package}.")
            other = rest.partition(".")[0]
            if not first and other in levels and other != own:
                assert levels[other] < levels[own], f"{path}: {own} must not know {other}"


@pytest.mark.parametrize("path", [*OURS, *TESTS, *_files("examples")], ids=_id)
def test_there_is_one_name_to_import(path: Path) -> None:
    """Not `engine`, `index`, ...: a user may have modules of these names."""
    tops = {name.partition(".")[0] for name in _imports(ast.walk(_tree(path)))}
    assert not tops & (LEVEL.keys() - {"driftline"})


def test_no_module_imports_itself_in_a_circle() -> None:
    modules = {_named(path): path for path in OURS}
    graph = {
        name: sorted({i for i in _imports(_at_import_time(_tree(path))) if i in modules} - {name})
        for name, path in modules.items()
    }
    done: set[str] = set()

    def follow(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " imports ".join((*way[way.index(name) :], name))
        if name not in done:
            for after in graph[name]:
                follow(after, (*way, name))
            done.add(name)

    for name in graph:
        follow(name, ())


@pytest.mark.parametrize("path", DECIDING, ids=_id)
def test_protocol_code_touches_no_socket_clock_or_thread(path: Path) -> None:
    tops = {name.partition(".")[0] for name in _imports(ast.walk(_tree(path)))}
    assert not tops & FORBIDDEN


@pytest.mark.parametrize("path", DECIDING, ids=_id)
def test_protocol_code_iterates_over_no_set(path: Path) -> None:
    """The order of a set differs from process to process; sorted() gives it one."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, (ast.For, ast.comprehension)):
            over = node.iter
            is_set = isinstance(over, (ast.Set, ast.SetComp))
            if isinstance(over, ast.Call) and isinstance(over.func, ast.Name):
                is_set = over.func.id in ("set", "frozenset")
            assert not is_set, f"line {over.lineno}: {ast.unparse(over)}"


def test_the_lists_of_this_test_name_what_exists() -> None:
    assert all(_files(name) for name in DRIVERS)
    for package, levels in ROOMS.items():
        there = {path.stem for path in (ROOT / package).glob("[a-z]*") if path.name != "py.typed"}
        assert set().union(*levels) == there


@pytest.mark.parametrize("path", [*OURS, *TESTS], ids=_id)
def test_files_fit_in_a_head(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX
