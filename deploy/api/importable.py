"""Finds the name by which other processes can import a flow."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FunctionType, ModuleType

from driftline.engine.errors import FlowError
from driftline.engine.flow.code import functions_of
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.loading import OF_A_FILE, LoadedAgain, load_flow
from driftline.engine.flow.plan import plan
from driftline.engine.raised import let_through


def name_of(flow: Flow) -> str:
    """``module:name`` or ``file.py:name``, by which another process imports this flow.

    Empty if there is no such name: the flow was made in a function, in a notebook, or under
    ``if __name__ == "__main__"``. To find out, a script is executed under another name. Raises
    LoadedAgain if the script then runs the flow.
    """
    return as_others_import(flow)[0]


def as_others_import(flow: Flow) -> tuple[str, Flow]:
    """The name of a flow, as of `name_of`, and the flow as other processes import it.

    That one has the values that its module has there. Without a name it is `flow` itself.
    """
    for module in _modules(flow):
        for name, value in list(vars(module).items()):
            if value is flow and (importable := _importable(module)):
                other = _imported(f"{importable}:{name}", flow)
                if other is not None:
                    return f"{importable}:{name}", other
    return "", flow


def search_paths() -> tuple[str, ...]:
    """The folders in which this process looks for modules."""
    return tuple(dict.fromkeys(os.path.abspath(path) for path in sys.path))


def _modules(flow: Flow) -> list[ModuleType]:
    """All loaded modules; the modules of the flow's functions come first."""
    homes = {getattr(vertex.function, "__module__", "") for vertex in flow.vertices}
    loaded = [module for module in sys.modules.values() if isinstance(module, ModuleType)]
    return sorted(loaded, key=lambda module: module.__name__ not in homes)


def _importable(module: ModuleType) -> str:
    """The name or file by which other processes import a module; empty if they cannot."""
    if module.__name__ != "__main__" and not module.__name__.startswith(OF_A_FILE):
        return module.__name__
    spec = module.__spec__
    if module.__name__ == "__main__" and spec is not None:  # python -m package.module
        return spec.name
    file = getattr(module, "__file__", None) or ""
    return str(Path(file).absolute()) if file.endswith(".py") and ":" not in file else ""


def _imported(spec: str, flow: Flow) -> Flow | None:
    """The flow that `spec` names, if it does the same as `flow`.

    Raises LoadedAgain if the loaded code runs a flow.
    """
    try:
        other = load_flow(spec)
        same_plan = plan(other).identity() == plan(flow).identity()
    except LoadedAgain:
        raise
    except FlowError:
        return None
    pairs = zip(_functions(other), _functions(flow), strict=True)
    try:
        same = same_plan and all(_do_the_same(*pair, compared=set()) for pair in pairs)
    except BaseException as error:  # values whose comparison fails may differ
        let_through(error)
        return None
    return other if same else None


def _functions(flow: Flow) -> list[object]:
    """All functions of a flow."""
    return [function for vertex in flow.vertices for function in functions_of(vertex)]


def _do_the_same(one: object, other: object, compared: set[tuple[int, int]]) -> bool:
    """Whether two functions have the same code, defaults and closed-over values.

    A script may have made the same flow with other values under ``if __name__ == "__main__":``;
    globals that it has changed there are not compared. `compared`: ids of functions under way, as
    a function may close over itself.
    """
    if one is other or (id(one), id(other)) in compared:
        return True
    if isinstance(one, FunctionType) and isinstance(other, FunctionType):
        compared.add((id(one), id(other)))
        values = zip(_bound_values(one), _bound_values(other), strict=False)
        return one.__code__ == other.__code__ and all(_do_the_same(*v, compared) for v in values)
    if type(one) is not type(other):
        return False
    looks = repr(one)
    return bool(one == other) or (looks == repr(other) and " at 0x" not in looks)


def _bound_values(function: FunctionType) -> list[object]:
    """The defaults of a function, and the values that it has closed over."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    keywords = sorted((function.__kwdefaults__ or {}).items())
    defaults = function.__defaults__ or ()
    return [len(cells), len(defaults), len(keywords), *cells, *defaults, *keywords]
