"""Finds the name by which other processes can import a flow."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

from driftline.engine.errors import FlowError
from driftline.engine.flow.code import code_of
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.loading import OF_A_FILE, LoadedAgain, load_flow
from driftline.engine.flow.plan import plan


def as_others_import(flow: Flow) -> tuple[str, Flow]:
    """Return the name of a flow, and the flow as other processes import it.

    The name is ``module:name`` or ``file.py:name``. It is empty if no other process can make this
    flow: it was made in a function, in a notebook, or under ``if __name__ == "__main__"``; then the
    flow is `flow` itself. To find out, a script is executed under another name. Raises LoadedAgain
    if the script then runs the flow.
    """
    for module in _modules(flow):
        for name, value in list(vars(module).items()):
            if value is flow and (where := _file_or_name(module)):
                try:
                    other = load_flow(f"{where}:{name}")
                except LoadedAgain:
                    raise
                except FlowError:
                    continue
                if _looks(other) == _looks(flow):
                    return f"{where}:{name}", other
    return "", flow


def search_paths() -> tuple[str, ...]:
    """The folders in which this process looks for modules."""
    return tuple(dict.fromkeys(os.path.abspath(path) for path in sys.path))


def _modules(flow: Flow) -> list[ModuleType]:
    """All loaded modules; the modules of the flow's functions come first."""
    homes = {getattr(vertex.function, "__module__", "") for vertex in flow.vertices}
    loaded = [module for module in sys.modules.values() if isinstance(module, ModuleType)]
    return sorted(loaded, key=lambda module: module.__name__ not in homes)


def _file_or_name(module: ModuleType) -> str:
    """The name or file by which other processes import a module; empty if they cannot."""
    if module.__name__ != "__main__" and not module.__name__.startswith(OF_A_FILE):
        return module.__name__
    spec = module.__spec__
    if module.__name__ == "__main__" and spec is not None:  # python -m package.module
        return spec.name
    file = getattr(module, "__file__", None) or ""
    return str(Path(file).absolute()) if file.endswith(".py") and ":" not in file else ""


def _looks(flow: Flow) -> object:
    """What two flows have in common that do the same: a script may have made the same graph with
    other values under ``if __name__ == "__main__":``."""
    return plan(flow).identity(), code_of(flow)
