"""Finds the flow that a command names: a module or a file, and perhaps a name in it.

``module``, ``module:name``, ``file.py`` or ``file.py:name``.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from driftline.engine.errors import FlowError
from driftline.engine.flow.flow import Flow

OF_A_FILE = "driftline_flow_"
"""How the names of modules begin that were loaded from a file; the rest is the file's."""

_being_loaded: list[str] = []
"""Modules whose code is being executed for the sake of a flow in them."""


class LoadedAgain(FlowError):
    """What is loaded for the sake of its flow runs a flow itself."""


def check_not_loading(what: str) -> None:
    """Raises LoadedAgain where `what` is called by code that is only loaded for its flow."""
    if _being_loaded:
        raise LoadedAgain(
            f"{_being_loaded[-1]} calls {what} while it is loaded for the flow in it, as node "
            'processes and commands do: put the call under `if __name__ == "__main__":`'
        )


def load_flow(spec: str) -> Flow:
    """The flow named by `spec`; without a name the module's `flow`, or its only Flow.

    Raises FlowError if there is none, or if it cannot run.
    """
    where, _, name = spec.partition(":")
    module = _load_module(where)
    if name:
        found = getattr(module, name, None)
        if not isinstance(found, Flow):
            raise FlowError(f"{spec}: {name!r} in {where} is not a Flow")
        return found.validate()
    flows = {n: value for n, value in vars(module).items() if isinstance(value, Flow)}
    if "flow" in flows:
        return flows["flow"].validate()
    if len(flows) != 1:
        raise FlowError(f"{where} has {len(flows) or 'no'} flows: name one, as {where}:NAME")
    return next(iter(flows.values())).validate()


def _load_module(where: str) -> ModuleType:
    _being_loaded.append(where)
    try:
        if where.endswith(".py"):
            return _load_file(Path(where))
        _find_also_in(Path.cwd())
        return importlib.import_module(where)
    except FlowError:
        raise
    except ModuleNotFoundError as error:
        if error.name == where.partition(".")[0]:
            raise FlowError(f"no flow {where!r}: give a module or the path of a .py file") from None
        raise FlowError(f"{where} cannot be loaded: {error}") from error
    except (Exception, SystemExit) as error:  # also a module that calls exit
        raise FlowError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    finally:
        _being_loaded.pop()


def _find_also_in(folder: Path) -> None:
    """Let a flow import what is beside it; behind all others, so that it shadows nothing."""
    path = str(folder.absolute())
    if path not in sys.path:
        sys.path.append(path)


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FlowError(f"no file {path}")
    _find_also_in(path.parent)
    name = OF_A_FILE + path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
