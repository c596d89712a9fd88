"""Under which name other processes can import a flow that is at hand."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

from driftline.engine.errors import FlowError
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.loading import OF_A_FILE, LoadedAgain, load_flow
from driftline.engine.flow.plan import plan


def name_of(flow: Flow) -> str:
    """``module:name`` or ``file.py:name`` that gives this flow in another process; empty if there
    is none: it was made in a function, a notebook, or under ``if __name__ == "__main__"``.

    A script is executed for that, under another name. Raises FlowError if it then runs itself.
    """
    for module in _modules(flow):
        for name, value in list(vars(module).items()):
            if value is flow:
                place = _place(module)
                if place and _gives(f"{place}:{name}", flow):
                    return f"{place}:{name}"
    return ""


def search_paths() -> tuple[str, ...]:
    """Where this process looks for modules."""
    return tuple(dict.fromkeys(os.path.abspath(path) for path in sys.path))


def _modules(flow: Flow) -> list[ModuleType]:
    """All modules that are loaded, first those that the flow's functions are from."""
    homes = {getattr(vertex.function, "__module__", "") for vertex in flow.vertices}
    loaded = [module for module in sys.modules.values() if isinstance(module, ModuleType)]
    return sorted(loaded, key=lambda module: module.__name__ not in homes)


def _place(module: ModuleType) -> str:
    """How a module is imported elsewhere; empty if it cannot be."""
    if module.__name__ != "__main__" and not module.__name__.startswith(OF_A_FILE):
        return module.__name__
    spec = module.__spec__
    if module.__name__ == "__main__" and spec is not None:  # python -m package.module
        return spec.name
    file = getattr(module, "__file__", None) or ""
    return str(Path(file).absolute()) if file.endswith(".py") and ":" not in file else ""


def _gives(spec: str, flow: Flow) -> bool:
    """Whether this flow comes of it. Raises FlowError if what is loaded runs a flow itself."""
    try:
        return plan(load_flow(spec)).identity() == plan(flow).identity()
    except LoadedAgain:
        raise
    except FlowError:
        return False
