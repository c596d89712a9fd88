"""Load a flow named as ``module``, ``module:name``, ``file.py`` or ``file.py:name``.

``name`` is the name of a Flow, or of a *factory*, a function without arguments that returns a Flow.
Each process of a run loads the module and calls the factory itself.
"""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import get_type_hints

from driftline.engine.errors import FlowError, Unavailable
from driftline.engine.flow.code import code_of
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.user_code import as_line, line_of
from driftline.engine.texts import reraise_interrupt

FILE_MODULE_PREFIX = "driftline_flow_"
"""Prefix of the names of modules loaded from a file, before the name of the file."""

_being_loaded: list[str] = []
"""Modules that are being loaded, innermost last."""


class RunWhileLoading(FlowError):
    """Error: a module that is being loaded for its flow runs a flow itself."""


def check_not_loading(call: str) -> None:
    """Raise RunWhileLoading if a module that is being loaded makes this call, as in `run(...)`."""
    if _being_loaded:
        raise RunWhileLoading(
            f"{_being_loaded[-1]} calls {call} while it is loaded for the flow in it. Node "
            "processes and commands load the module, too: put the call under "
            '`if __name__ == "__main__":`'
        )


def resolve_flow(flow: object) -> Flow:
    """Return `flow` itself if it is a Flow, or load the flow that a text names.

    Raises FlowError for anything else. Only a loaded flow is validated.
    """
    if isinstance(flow, str):
        return load_flow(flow)
    if not isinstance(flow, Flow):
        raise FlowError(f"a {type(flow).__name__} is not a flow: give a Flow, or 'module:name'")
    code_of(flow)  # computes the digests before any function can change variables
    return flow


def load_flow(spec: str) -> Flow:
    """Return the flow that `spec` names.

    Without a name: the module's `flow`, or its only Flow, or, if it has no Flow, the result of its
    only function with the annotation ``-> Flow`` and no required arguments. Raises FlowError if
    there is no such flow or it is invalid. The error names the line of the user's code at fault, if
    there is one.
    """
    flow = _find_flow(spec).validate()
    code_of(flow)  # computes the digests before any function can change variables
    return flow


def _find_flow(spec: str) -> Flow:
    """Return the flow that `spec` names, not validated. Raises FlowError."""
    location, _, name = spec.partition(":")
    module = _load_module(location)
    flows = {n: value for n, value in vars(module).items() if isinstance(value, Flow)}
    if name:
        if not hasattr(module, name):
            found = ", ".join(flows)
            raise FlowError(
                f"{location} has no {name!r}: give the name of a Flow, or of a function that "
                "returns one" + f"; its flows are: {found}" * bool(found)
            )
        return _as_flow(getattr(module, name), name, location)
    if "flow" in flows:
        return flows["flow"]
    factories = {} if flows else _factories(module)
    candidates = flows or factories
    if not candidates:
        raise FlowError(
            f'{location} has no flows: give it one (flow = Flow("NAME")), or name a function that '
            f"returns one, as {location}:NAME"
        )
    if len(candidates) != 1:
        kind = "functions that return a Flow" if factories else "flows"
        names = ", ".join(candidates)
        raise FlowError(
            f"{location} has {len(candidates)} {kind} ({names}): name one, as {location}:NAME"
        )
    [(name, value)] = candidates.items()
    return _as_flow(value, name, location)


def find_object(spec: str) -> object:
    """Return the object that ``module:name`` names. Raises FlowError if there is none."""
    location, _, name = spec.partition(":")
    if not name:
        raise FlowError(f"{spec} names no object: give {location}:NAME")
    module = _load_module(location)
    if not hasattr(module, name):
        raise FlowError(f"{location} has no {name!r}")
    value: object = getattr(module, name)
    return value


def load_object(spec: str, *arguments: object) -> object:
    """Return the object that ``module:name`` names; if it is a class or function, what it returns.

    `arguments`: passed to a class or function that requires some. Raises FlowError if there is no
    such object, or if it cannot be called with these arguments or fails; Unavailable if the call
    raises it.
    """
    value = find_object(spec)
    location, _, name = spec.partition(":")
    if inspect.isclass(value) or isinstance(value, FunctionType):
        return _call(value, name, location, arguments)
    return value


def _as_flow(value: object, name: str, location: str) -> Flow:
    """Return the value itself if it is a Flow, or the result of a factory. Raises FlowError."""
    if isinstance(value, Flow):
        return value
    if inspect.isclass(value) or not callable(value):
        kind = "class" if inspect.isclass(value) else type(value).__name__
        raise FlowError(
            f"{location}:{name} is a {kind}, not a Flow, nor a function without arguments that "
            "returns one"
        )
    result = _call(value, name, location)
    if not isinstance(result, Flow):
        raise FlowError(f"{location}:{name} returns a {type(result).__name__}, not a Flow")
    return result


def _call(
    function: Callable[..., object], name: str, location: str, arguments: Sequence[object] = ()
) -> object:
    """Call a function with all arguments, or with none if it requires none.

    Raises FlowError if the function requires another number of arguments, or fails; Unavailable if
    the call raises it. `name`, `location`: for errors.
    """
    required = _required(function)
    if len(required) not in (0, len(arguments)):
        takes = f"{len(arguments)} at most" if arguments else "no arguments"
        raise FlowError(
            f"{location}:{name} cannot be called: a function that is named here takes {takes}, "
            f"but this one needs {', '.join(required)}"
        )
    try:
        return function(*arguments) if required else function()
    except FlowError as error:
        raise _with_line(error) from None
    except Unavailable:
        raise
    except BaseException as error:
        reraise_interrupt(error)
        raise FlowError(
            f"{location}:{name} fails: {_describe_error(error)}{_line(error)}"
        ) from error


def _with_line(error: FlowError) -> FlowError:
    """Return the error with the line of user code that caused it, if the text lacks this line."""
    line = _line(error)
    if isinstance(error, RunWhileLoading) or line in str(error):  # line is present already, or ""
        return error
    return FlowError(f"{error}{line}")


def _line(error: BaseException) -> str:
    """Return the line of user code in an exception's traceback, formatted for an error."""
    return as_line(line_of(error, of_libraries=False))


def _describe_error(error: BaseException) -> str:
    """Describe an exception of user code, or its attempt to end the process."""
    if isinstance(error, SystemExit):
        return (
            f"it ends the process while it is loaded, by sys.exit({error.code!r}): put what a "
            'script does under `if __name__ == "__main__":`'
        )
    return f"{type(error).__name__}: {error}"


def _required(function: Callable[..., object]) -> list[str]:
    """Return the names of the parameters that a call must pass."""
    return [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def _factories(module: ModuleType) -> dict[str, FunctionType]:
    """Return by name the functions of a module with the annotation ``-> Flow``.

    Leaves out functions that the module imports, and those with required arguments.
    """
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, FunctionType)
        and value.__module__ == module.__name__
        and _return_type(value) is Flow
        and not _required(value)
    }


def _return_type(function: FunctionType) -> object:
    """Return the annotated type of a function's result; None if it is missing or unknown."""
    annotation: object = function.__annotations__.get("return")
    try:
        return get_type_hints(function).get("return")
    except BaseException as error:  # for example a name imported only for type checkers
        reraise_interrupt(error)
        return Flow if annotation in ("Flow", "driftline.Flow") else None


def _load_module(location: str) -> ModuleType:
    """Import a module by its name, or by the path of its file. Raises FlowError."""
    _being_loaded.append(location)
    try:
        if location.endswith(".py"):
            return _load_file(Path(location))
        if not all(part.isidentifier() for part in location.split(".")):
            raise FlowError(f"no flow {location!r}: give a module or the path of a .py file")
        _add_to_path(Path.cwd())
        return importlib.import_module(location)
    except FlowError as error:
        raise _with_line(error) from None
    except ModuleNotFoundError as error:
        if error.name == location.partition(".")[0]:
            raise FlowError(
                f"no flow {location!r}: give a module or the path of a .py file"
            ) from None
        raise FlowError(f"{location} cannot be loaded: {error}{_line(error)}") from error
    except BaseException as error:
        reraise_interrupt(error)
        advice = ""
        if isinstance(error, ImportError) and "relative import" in str(error):
            advice = "; name a file of a package as a module: package.module"
        raise FlowError(
            f"{location} cannot be loaded: {_describe_error(error)}{advice}{_line(error)}"
        ) from error
    finally:
        _being_loaded.pop()


def _add_to_path(folder: Path) -> None:
    """Let a flow import modules from a folder; Python searches it last, so it hides no module."""
    path = str(folder.absolute())
    if path not in sys.path:
        sys.path.append(path)


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FlowError(f"{path}: there is no such file")
    _add_to_path(path.parent)
    name = FILE_MODULE_PREFIX + path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
