"""Rules of the code base: the order of imports, and modules that protocol code may not use."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LAYERS = (
    ("engine",),
    ("acker", "barrier", "coordinator", "connectors"),
    ("pipeline",),
    ("deploy",),
    ("simulation",),
    ("api", "serve"),
    ("index",),
    ("bench",),
    ("driftline",),
)
"""From the bottom up; the packages of one layer do not import each other."""

LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}

CORE = (
    "acker",
    "barrier",
    "coordinator",
    "deploy/node",
    "deploy/roles",
    "engine/flow",
    "engine/operators",
    "engine/snapshots",
    "engine/state",
    "engine/wire",
    "engine/reference.py",
    "serve/journal",
    "serve/views",
)
"""Protocol code: it receives messages and the time, and returns messages and disk work."""

EXEMPT = (
    "coordinator/registry.py",
    "coordinator/zookeeper.py",
    "engine/operators/context.py",  # its random numbers depend on labels only
    "serve/journal/consumer.py",
    "serve/views/checkpoint.py",
)
"""Files in the folders of protocol code that are exempt: they use a disk or ZooKeeper."""

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


def _files(*where: str) -> list[Path]:
    found: list[Path] = []
    for name in where:
        path = ROOT / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.is_file() else []
    return found


SOURCE = [
    *_files(*(name for layer in LAYERS[:-1] for name in layer)),
    *sorted((ROOT / "driftline").glob("*.py")),
]
PROTOCOL = [path for path in _files(*CORE) if path not in _files(*EXEMPT)]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, "imports name the whole path"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def _imports_of(path: Path) -> frozenset[str]:
    return frozenset(_imports(ast.walk(_tree(path))))


def _at_import_time(node: ast.AST) -> Iterator[ast.AST]:
    """Yield everything that runs at import: no function bodies, and nothing for types only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from _at_import_time(child)


def _module(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return name if name.partition(".")[0] == "driftline" else f"driftline.{name}"


def _package(module: str) -> str:
    """Return the top-level folder of a module: `driftline` if public, `""` for libraries."""
    first, _, rest = module.partition(".")
    package = rest.partition(".")[0]
    return "" if first != "driftline" else package if package in LEVEL else first


def _find_cycle(graph: Mapping[str, Iterable[str]]) -> str:
    """Return a cycle of the graph as text; empty if there is none."""
    done: set[str] = set()

    def follow(name: str, path: tuple[str, ...]) -> str:
        if name in path:
            return " imports ".join((*path[path.index(name) :], name))
        if name not in done:
            for after in graph.get(name, ()):
                if circle := follow(after, (*path, name)):
                    return circle
            done.add(name)
        return ""

    return next(filter(None, (follow(name, ()) for name in graph)), "")


def test_imports_go_downwards_between_packages() -> None:
    wrong = []
    for path in SOURCE:
        own = path.relative_to(ROOT).parts[0]
        modules = {m for m in _imports_of(path) if m != "driftline"}
        wrong += [
            f"{path.relative_to(ROOT)} imports {other}"
            for other in sorted({*map(_package, modules)} - {own, ""})
            if LEVEL[other] >= LEVEL[own]
        ]
    assert not wrong


def test_packages_of_one_folder_have_no_import_cycle() -> None:
    graph: dict[str, set[str]] = {}
    for path in SOURCE:
        own = ".".join(_module(path).split(".")[:3])
        for module in _imports_of(path):
            other = ".".join(module.split(".")[:3])
            if _package(module) in LEVEL and other != own and other.count(".") == 2:
                graph.setdefault(own, set()).add(other)
    assert _find_cycle(graph) == ""


def test_modules_have_no_import_cycle() -> None:
    modules = {_module(path): path for path in SOURCE}
    graph = {
        name: sorted({i for i in _imports(_at_import_time(_tree(path))) if i in modules} - {name})
        for name, path in modules.items()
    }
    assert _find_cycle(graph) == ""


def test_imports_use_only_the_driftline_namespace() -> None:
    """Not `engine`, `index`, ...: a user may have modules of these names."""
    wrong = []
    for path in [*SOURCE, *_files("tests", "examples")]:
        tops = {name.partition(".")[0] for name in _imports_of(path)}
        if tops & (LEVEL.keys() - {"driftline"}):
            wrong.append(path)
    assert not wrong


def test_class_names_are_unique() -> None:
    paths: dict[str, list[str]] = {}
    for path in SOURCE:
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef):
                paths.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in paths.items() if len(found) > 1} == {}


def test_protocol_code_imports_no_socket_clock_or_thread() -> None:
    wrong = []
    for path in PROTOCOL:
        tops = {name.partition(".")[0] for name in _imports_of(path)}
        wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in sorted(tops & FORBIDDEN)]
    assert not wrong


def test_protocol_code_iterates_over_no_set() -> None:
    """The order of a set differs from process to process; sorted() gives it one."""
    wrong = []
    for path in PROTOCOL:
        for node in ast.walk(_tree(path)):
            if isinstance(node, (ast.For, ast.comprehension)):
                over = node.iter
                is_set = isinstance(over, (ast.Set, ast.SetComp))
                if isinstance(over, ast.Call) and isinstance(over.func, ast.Name):
                    is_set = over.func.id in ("set", "frozenset")
                if is_set:
                    wrong.append(f"{path.relative_to(ROOT)}:{over.lineno}: {ast.unparse(over)}")
    assert not wrong


def test_lists_of_this_test_name_existing_files() -> None:
    assert all(_files(name) for name in (*CORE, *EXEMPT))
