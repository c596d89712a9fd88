"""Digests of a flow's code, to detect which operators changed between runs.

The digest of an operator covers its function, its key function, the `reduce` functions of its
states and its `fields`. Of a function it covers instructions with their constants, defaults and
closed-over values, and in the same way the user's own functions, classes and variables that the
code names: in its module, in other modules of the user, and in modules that a function itself
imports. A module that code passes on, as in `getattr(module, name)`, counts as a whole. The digest
ignores comments, docstrings, annotations, positions in files, and names of local variables.

A value counts by its contents: containers by their items, other objects by what `pickle` would
store. An object that cannot be pickled counts as its type, and `Code.unseen` names it. Variables
count with the values that they have when the flow is loaded. A cache that functions fill later does
not change the digest, because the digest of a flow is computed once.

The digest is the same in every process that loads the same code: it contains no addresses and no
hashes. Another version of Python compiles the same code to other instructions; then `Code.python`
differs, and digests cannot be compared.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from importlib.abc import InspectLoader
from importlib.machinery import PathFinder
from importlib.util import MAGIC_NUMBER, resolve_name
from itertools import accumulate, pairwise
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import astuple

from driftline.engine.events import event_fields, log
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.user_code import is_python_file, is_user_file
from driftline.engine.state.managed import ttl_of
from driftline.engine.texts import reraise_interrupt

T = TypeVar("T")

DEEPEST = 60
"""Levels of nested values, and of functions that name functions, that a digest covers."""

ITEMS_MAX = 10_000
"""Maximum number of items of a list, dict or set that a digest covers. Of a longer list or dict, it
covers the first items; of a longer set none, as sets have no order."""

VALUES_MAX = 200_000
"""Values that the digest of an operator covers; further ones count as their types."""

ITEM_VALUES_MAX = 1000
"""Values that the digest of one item of a set covers."""

LONG = 1000
"""A text or bytes longer than this counts by its own digest."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))
_FLAGS = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)
_HAS_NAME = {*dis.hasname}
_HAS_CONSTANT = {*dis.hasconst}
_GLOBAL_LOADS = {"LOAD_GLOBAL", "LOAD_NAME"}
_NAMES_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "LOAD_CONST"}
"""Instructions after the load of a module that name one of its variables, also for `getattr`."""


class Code(Struct, frozen=True, array_like=True):
    """Code of a flow, as a run records it."""

    python: str = ""
    """Human-readable version of Python and its instructions; digests of others are not comparable.
    """
    operators: tuple[tuple[str, str], ...] = ()
    """(name of an operator, digest of its code), in the order of the flow."""
    unseen: tuple[str, ...] = ()
    """Human-readable names of values whose changes are not detected, with type and operator."""

    @property
    def text(self) -> str:
        """Short text that is the same for the same code on the same Python."""
        return f"{self.python} {_digest(self.operators)}"

    def changed(self, before: Code) -> list[str]:
        """Return the operators in both codes whose digests differ; none if `python` differs."""
        if self.python != before.python:
            return []
        digests = dict(before.operators)
        return [name for name, mine in self.operators if digests.get(name, mine) != mine]

    def log_unseen(self) -> None:
        """Log the values whose changes are not detected."""
        if self.unseen:
            fields = event_fields("changes-undetected", values=", ".join(self.unseen))
            log.info("changes are not noticed of: %s", ", ".join(self.unseen), extra=fields)


NO_CODE = Code()
"""Code of a run that recorded none."""


def code_of(flow: Flow) -> Code:
    """Return the code of a flow as it was at the first call."""
    if flow.code is None or flow.code[0] != len(flow.vertices):
        flow.code = len(flow.vertices), _code_of(flow)
    code: Code = flow.code[1]
    return code


def _code_of(flow: Flow) -> Code:
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    instructions = int.from_bytes(MAGIC_NUMBER[:2], "little")
    optimised = f" -{'O' * sys.flags.optimize}" if sys.flags.optimize else ""
    operators, unseen = [], []
    for vertex in flow.vertices:
        describer = _Describer()
        operators.append((vertex.name, _digest(describer.describe_vertex(vertex))))
        unseen += [f"{kind} in {vertex.name!r}" for kind in describer.unseen]
    of = f"{python} (instructions {instructions}){optimised}"
    return Code(of, tuple(operators), tuple(dict.fromkeys(unseen)))


def user_functions(vertex: Vertex) -> list[object]:
    """Return the functions of an operator, its key function, and the `reduce` of each state.

    None stands for a function that does not exist.
    """
    reduces = [getattr(state, "reduce", None) for state in vertex.states]
    timers = [] if vertex.on_timer is None else [vertex.on_timer]
    return [vertex.function, vertex.key, *reduces, *timers]


def _digest(look: object) -> str:
    text = repr(look).encode(errors="backslashreplace")
    return blake2b(text, digest_size=8).hexdigest()


class _Describer:
    """Builder of *looks*: nested tuples of plain values that describe objects, for a digest.

    The look of a repeated object is the number of its first occurrence, so cycles end.
    """

    def __init__(self, depth: int = 0, most: int = VALUES_MAX) -> None:
        self._numbers: dict[int, int] = {}
        self._kept_alive: list[object] = []
        """All objects with a number, kept alive so that no other object gets the same id."""
        self._depth = depth
        self._remaining_values = most
        self._names: list[str] = []
        """Variables on the path to the current value."""
        self._modules: set[str] = set()
        """Modules that are covered because a function imports them."""
        self.unseen: list[str] = []
        """Values that cannot be pickled."""

    def describe_vertex(self, vertex: Vertex) -> object:
        """Return the look of an operator: of its functions the code, but not of Python's own."""
        parts: list[object] = [vertex.fields]
        if vertex.event_time is not None:
            parts.append(astuple(vertex.event_time))
        if any(ttls := [ttl_of(state) for state in vertex.states]):
            parts.append(ttls)
        if (parameters := vertex.operator.parameters()) is not None:
            parts.append(self.describe(parameters))
        for function in user_functions(vertex):
            if isinstance(function, FunctionType) and not is_python_file(
                function.__code__.co_filename
            ):
                parts.append(self._once(function, self._function))
            else:
                parts.append(self.describe(function))
        return tuple(parts)

    def describe(self, value: object) -> object:
        """Return the look of any value."""
        if type(value) in _PLAIN:
            if isinstance(value, str | bytes) and len(value) > LONG:
                return type(value).__name__, len(value), _digest(value)
            return type(value).__name__, value
        self._remaining_values -= 1
        if self._depth > DEEPEST or self._remaining_values < 0:
            return "and more", type(value).__qualname__
        self._depth += 1
        try:
            return self._once(value, self._new)
        except BaseException as error:  # from the user's own properties, iterators or `__repr__`
            reraise_interrupt(error)
            self.unseen.append(" ".join([*self._names[-1:], f"({type(value).__qualname__})"]))
            return "no look", type(value).__qualname__, type(error).__name__
        finally:
            self._depth -= 1

    def _once(self, value: object, look: Callable[..., object]) -> object:
        if id(value) in self._numbers:
            return "again", self._numbers[id(value)]
        if not isinstance(value, tuple | frozenset):  # equal constants may be one object or two
            self._numbers[id(value)] = len(self._numbers)
            self._kept_alive.append(value)
        return look(value)

    def _new(self, value: object) -> object:
        if isinstance(value, dict | MappingProxyType):
            items = [item for pair in _first(value.items()) for item in pair]
            return self._kind(value), len(value), self._all(items)
        if isinstance(value, list | tuple | deque):
            return self._kind(value), len(value), self._all(_first(value))
        if isinstance(value, set | frozenset):
            members: Iterable[object] = value if len(value) <= ITEMS_MAX else ()
            looks = sorted(
                repr(_Describer(self._depth, ITEM_VALUES_MAX).describe(item)) for item in members
            )
            return self._kind(value), len(value), tuple(looks)
        return self._callable(value) or self._reduced(value)

    def _kind(self, value: object) -> object:
        kind = type(value)
        return self.describe(kind) if _is_users_class(kind) else _name(kind)

    def _all(self, values: Iterable[object]) -> tuple[object, ...]:
        return tuple(self.describe(value) for value in values)

    # Callables and types.

    def _callable(self, value: object) -> object:
        if isinstance(value, FunctionType):
            file = value.__code__.co_filename
            return self._function(value) if is_user_file(file) else _name(value)
        if isinstance(value, MethodType):
            return "method", self.describe(value.__func__), self.describe(value.__self__)
        if isinstance(value, functools.partial):
            return "partial", self._all((value.func, value.args, value.keywords))
        if isinstance(value, staticmethod | classmethod):
            return type(value).__name__, self.describe(value.__func__)
        if isinstance(value, property):
            return "property", self._all((value.fget, value.fset))
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, BuiltinFunctionType) and not isinstance(value.__self__, ModuleType):
            return "method", value.__name__, self.describe(value.__self__)
        if isinstance(value, ModuleType):
            return "module", value.__name__
        if (inside := _wrapped(value)) is not None:
            return _name(type(value)), self.describe(inside)
        return _name(value) if inspect.isroutine(value) else None

    def _function(self, function: FunctionType) -> object:
        cells = []
        for cell in function.__closure__ or ():
            try:
                cells.append(cell.cell_contents)
            except ValueError:  # the variable has no value yet
                cells.append(None)
        return (
            "function",
            self._code(function.__code__),
            self._all(cells),
            self._all(function.__defaults__ or ()),
            self._all(sorted((function.__kwdefaults__ or {}).items())),
            self._named(function.__code__, function.__globals__),
        )

    def _class(self, value: type) -> object:
        if not _is_users_class(value):
            return _name(value)
        parts = [
            (name, self.describe(part))
            for name, part in sorted(vars(value).items())
            if isinstance(part, FunctionType) or not (name.startswith("__") or name == "_abc_impl")
        ]
        return "class", value.__qualname__, self._all(value.__bases__), tuple(parts)

    def _reduced(self, value: object) -> object:
        """Return the look of an object, made of what `pickle` would store."""
        if type(value).__module__.startswith("driftline.engine."):
            return self._kind(value)
        pickled = copyreg.dispatch_table.get(type(value))
        reduced = pickled(value) if pickled else value.__reduce_ex__(2)
        if isinstance(reduced, str):  # the name of a global variable
            return self._kind(value), reduced
        make, arguments, state, *items = (*reduced, None, None, None)[:5]
        listed = [_first(each) if each is not None else () for each in items]
        return self._kind(value), self._all((make, arguments, state, *map(tuple, listed)))

    # Code objects.

    def _code(self, code: CodeType) -> object:
        numbers = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
        steps = [self._step(code, step) for step in dis.get_instructions(code)]
        return (*numbers, code.co_flags & _FLAGS, code.co_exceptiontable, tuple(steps))

    def _step(self, code: CodeType, step: dis.Instruction) -> object:
        """Return the look of an instruction, with its constant by value, not by index.

        A docstring shifts the indexes of later constants.
        """
        if step.opcode in _HAS_CONSTANT:
            value = step.argval
            look = self._code(value) if isinstance(value, CodeType) else self.describe(value)
            return step.opname, look
        return step.opname, step.argval if step.opcode in _HAS_NAME else step.arg

    def _named(self, code: CodeType, module: dict[str, object]) -> object:
        """Return the looks of what the code names in its module and imports.

        Includes code within it; excludes variables that it assigns.
        """
        codes = list(_codes(code))
        steps = [step for each in codes for step in dis.get_instructions(each)]
        assigned = {step.argval for step in steps if step.opname == "STORE_GLOBAL"}
        names = {step.argval for step in steps if step.opname in _GLOBAL_LOADS} - assigned
        constants = {text for each in codes for text in each.co_consts if isinstance(text, str)}
        attributes = sorted(constants.union(*(each.co_names for each in codes)))
        values = {
            step.argval
            for step, after in pairwise(steps)
            if step.opname in _GLOBAL_LOADS and after.opname not in _NAMES_ATTRIBUTE
        }
        named = [
            (n, self._describe_global(n, module[n], None if n in values else attributes))
            for n in sorted(names & {*module})
        ]
        return named, [self._imported(name) for name in _imports(steps, module)]

    def _describe_global(self, name: str, value: object, attributes: list[str] | None) -> object:
        """Return the look of a variable of a module.

        `attributes`: names that may follow it after a dot or in `getattr`. None: it is used as a
        value, as in `getattr(module, text)`, so any name may.
        """
        if not isinstance(value, ModuleType):
            self._names.append(name)
            look = self.describe(value)
            self._names.pop()
            return look
        if not is_user_file(getattr(value, "__file__", None) or "<frozen "):
            return None
        if attributes is None:
            attributes = sorted(each for each in vars(value) if not each.startswith("__"))
        inside = ((each, vars(value)[each]) for each in attributes if each in vars(value))
        looks = [(each, part) for each, part in inside if not isinstance(part, ModuleType)]
        return [(each, self._describe_global(each, part, [])) for each, part in looks]

    def _imported(self, name: str) -> object:
        """Return the look of a module that a function imports, and of its packages.

        Executes nothing.
        """
        looks: list[object] = []
        path: Sequence[str] | None = None
        for inner in accumulate(name.split("."), "{}.{}".format):
            spec = PathFinder.find_spec(inner, path)
            if spec is None or not is_user_file(spec.origin or ""):
                break
            code = spec.loader.get_code(inner) if isinstance(spec.loader, InspectLoader) else None
            if code is not None and inner not in self._modules:
                self._modules.add(inner)
                steps = [step for each in _codes(code) for step in dis.get_instructions(each)]
                within = _imports(steps, {"__package__": spec.parent})
                looks += [inner, self._code(code), *map(self._imported, within)]
            if (path := spec.submodule_search_locations) is None:
                break
        return tuple(looks)


def _first(values: Iterable[T]) -> Iterator[T]:
    return (value for value, _ in zip(values, range(ITEMS_MAX), strict=False))


def _imports(steps: Sequence[dis.Instruction], module: Mapping[str, object]) -> list[str]:
    """Return the names of modules that instructions import; some may be of variables in them."""
    found = []
    for (level, names), (_, step) in pairwise(pairwise(steps)):
        if step.opname == "IMPORT_NAME":
            package = str(module.get("__package__") or "")
            with suppress(ImportError):
                name = resolve_name("." * level.argval + step.argval, package)
                found += [name, *(f"{name}.{each}" for each in names.argval or ())]
    return sorted({*found})


def _is_users_class(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is None:  # in a notebook, or in Python itself
        return kind.__module__ == "__main__"
    return is_user_file(file)


def _wrapped(value: object) -> FunctionType | None:
    """Return the function in a `functools.cache`, `cached_property` or similar wrapper, or None."""
    for name in ("__wrapped__", "func"):
        if isinstance(function := inspect.getattr_static(value, name, None), FunctionType):
            return function
    return None


def _name(value: object) -> object:
    """Return the look of code that is not the user's: its name."""
    return "of others", getattr(value, "__module__", ""), getattr(value, "__qualname__", "")


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all those within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
