"""The code of a flow's functions as digests: says which operator's code has changed between runs.

The digest of an operator covers its function, its key function, the `reduce` functions of its
states and its `fields`: instructions with their constants, defaults, closed-over values, and in the
same way the user's own functions and classes that the code names, in its module or in other modules
of the user. Constants that the code names count, too. Comments, docstrings, annotations, places in
files, and names of local variables do not; nor do lists, dicts and sets in a module's variables, as
functions may change them.

The digest is the same in every process that loads the same code: no addresses, no hashes. A value
that shows nothing else counts as its type. Another version of Python makes other instructions of
the same code: then digests cannot be compared, and `Code.python` differs.
"""

from __future__ import annotations

import dis
import functools
import inspect
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from importlib.util import MAGIC_NUMBER
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import TypeVar

from driftline.engine.flow.flow import Flow
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.users import is_of_python, is_users
from driftline.engine.texts import let_through

T = TypeVar("T")

DEEPEST = 60
"""Levels of values within values, and of functions that name functions, that a digest looks at."""

LONGEST = 10_000
"""Items of one list, dict or set that a digest looks at: of a longer list or dict its first ones,
of a longer set none, as they have no order."""

MOST = 200_000
"""Values that the digest of an operator looks at; further ones count as their types."""

OF_AN_ITEM = 1000
"""The same for one item of a set."""

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
_CODE = (FunctionType, MethodType, functools.partial, type)
_OF_MODULE = {"LOAD_GLOBAL", "LOAD_NAME"}


@dataclass(frozen=True, slots=True)
class Code:
    """The code of a flow, as a run notes it."""

    python: str = ""
    """The Python whose instructions the digests are of, as a text for people."""
    operators: tuple[tuple[str, str], ...] = ()
    """(name of an operator, digest of its code), in the order of the flow."""

    @property
    def text(self) -> str:
        """A short text that is the same for the same code on the same Python."""
        return f"{self.python} {_digest(self.operators)}"

    def changed(self, before: Code) -> list[str]:
        """The operators of both codes whose digests differ; none if the Pythons differ."""
        if self.python != before.python:
            return []
        digests = dict(before.operators)
        return [name for name, mine in self.operators if digests.get(name, mine) != mine]


NO_CODE = Code()


def code_of(flow: Flow) -> Code:
    """The code of a flow."""
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    instructions = int.from_bytes(MAGIC_NUMBER[:2], "little")
    optimised = f" -{'O' * sys.flags.optimize}" if sys.flags.optimize else ""
    operators = tuple((v.name, _digest(_Looks().of_vertex(v))) for v in flow.vertices)
    return Code(f"{python} (instructions {instructions}){optimised}", operators)


def functions_of(vertex: Vertex) -> list[object]:
    """The functions of an operator: its own, that of its key, and those of its states."""
    reduces = [getattr(state, "reduce", None) for state in vertex.states]
    return [vertex.function, vertex.key, *reduces]


def _digest(look: object) -> str:
    text = repr(look).encode(errors="backslashreplace")
    return blake2b(text, digest_size=8).hexdigest()


class _Looks:
    """Makes looks: nested tuples of plain values that show what objects are.

    An object that is looked at already, or again, is the number of its first look: so functions may
    name each other.
    """

    def __init__(self, depth: int = 0, most: int = MOST) -> None:
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []
        """All objects with a number: no other object may get the id of one."""
        self._depth = depth
        self._left = most

    def of_vertex(self, vertex: Vertex) -> object:
        """The look of an operator. Its functions count whoever wrote them, but not Python's."""
        parts: list[object] = [vertex.fields]
        for function in functions_of(vertex):
            if isinstance(function, FunctionType) and not is_of_python(
                function.__code__.co_filename
            ):
                parts.append(self._once(function, self._function))
            else:
                parts.append(self.of(function))
        return tuple(parts)

    def of(self, value: object) -> object:
        """The look of any value."""
        if type(value) in _PLAIN:
            return type(value).__name__, value
        self._left -= 1
        if self._depth > DEEPEST or self._left < 0:
            return "and more", type(value).__qualname__
        self._depth += 1
        try:
            return self._once(value, self._new)
        except BaseException as error:  # of the user's own properties, iterators or `__repr__`
            let_through(error)
            return "no look", type(value).__qualname__, type(error).__name__
        finally:
            self._depth -= 1

    def _once(self, value: object, look: Callable[..., object]) -> object:
        if id(value) in self._numbers:
            return "again", self._numbers[id(value)]
        if not isinstance(value, tuple | frozenset):  # equal constants may be one object, or two
            self._numbers[id(value)] = len(self._numbers)
            self._kept.append(value)
        return look(value)

    def _new(self, value: object) -> object:
        if isinstance(value, dict):
            items = [item for pair in _first(value.items()) for item in pair]
            return self._kind(value), len(value), self._all(items)
        if isinstance(value, list | tuple | deque):
            return self._kind(value), len(value), self._all(_first(value))
        if isinstance(value, set | frozenset):
            members: Iterable[object] = value if len(value) <= LONGEST else ()
            looks = sorted(repr(_Looks(self._depth, OF_AN_ITEM).of(item)) for item in members)
            return self._kind(value), len(value), tuple(looks)
        return self._callable(value) or self._object(value)

    def _kind(self, value: object) -> object:
        kind = type(value)
        return self.of(kind) if _is_users_class(kind) else _name(kind)

    def _all(self, values: Iterable[object]) -> tuple[object, ...]:
        return tuple(self.of(value) for value in values)

    # Callables and types.

    def _callable(self, value: object) -> object:
        if isinstance(value, FunctionType):
            file = value.__code__.co_filename
            return self._function(value) if is_users(file) else _name(value)
        if isinstance(value, MethodType):
            return "method", self.of(value.__func__), self.of(value.__self__)
        if isinstance(value, functools.partial):
            return "partial", self._all((value.func, value.args, value.keywords))
        if isinstance(value, staticmethod | classmethod):
            return type(value).__name__, self.of(value.__func__)
        if isinstance(value, property):
            return "property", self._all((value.fget, value.fset))
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, BuiltinFunctionType) and not isinstance(value.__self__, ModuleType):
            return "method", value.__name__, self.of(value.__self__)
        if isinstance(value, ModuleType):
            return "module", value.__name__
        if (inside := _wrapped(value)) is not None:
            return _name(type(value)), self.of(inside)
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
            (name, self.of(part))
            for name, part in sorted(vars(value).items())
            if isinstance(part, FunctionType) or not (name.startswith("__") or name == "_abc_impl")
        ]
        return "class", value.__qualname__, self._all(value.__bases__), tuple(parts)

    def _object(self, value: object) -> object:
        kind = self._kind(value)
        if _is_users_class(type(value)):
            return kind, tuple((name, self.of(part)) for name, part in _attributes(value))
        if isinstance(value, re.Pattern):
            return kind, value.pattern, value.flags
        shown = repr(value)
        return kind, "" if " at 0x" in shown else shown

    # Code objects.

    def _code(self, code: CodeType) -> object:
        numbers = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
        steps = [self._step(code, step) for step in dis.get_instructions(code)]
        return (*numbers, code.co_flags & _FLAGS, code.co_exceptiontable, tuple(steps))

    def _step(self, code: CodeType, step: dis.Instruction) -> object:
        """An instruction. Its constant counts by value: a docstring moves those after it."""
        if step.opcode in _HAS_CONSTANT:
            value = step.argval
            look = self._code(value) if isinstance(value, CodeType) else self.of(value)
            return step.opname, look
        return step.opname, step.argval if step.opcode in _HAS_NAME else step.arg

    def _named(self, code: CodeType, module: dict[str, object]) -> object:
        """What the code, and code within it, names in its module; not what it assigns there."""
        codes = list(_codes(code))
        steps = [step for each in codes for step in dis.get_instructions(each)]
        assigned = {step.argval for step in steps if step.opname == "STORE_GLOBAL"}
        names = {step.argval for step in steps if step.opname in _OF_MODULE} - assigned
        attributes = sorted({name for each in codes for name in each.co_names})
        return tuple(
            (name, look)
            for name in sorted(names & module.keys())
            if (look := self._of_module(module[name], attributes)) is not None
        )

    def _of_module(self, value: object, attributes: list[str]) -> object:
        """The look of a variable of a module; None if it does not count.

        `attributes`: the names that may follow a dot after it.
        """
        if isinstance(value, ModuleType):
            if not is_users(getattr(value, "__file__", None) or "<frozen "):
                return None
            inside = ((name, vars(value).get(name)) for name in attributes)
            looks = [(name, part) for name, part in inside if not isinstance(part, ModuleType)]
            return tuple((name, self._of_module(part, [])) for name, part in looks if part)
        constant = type(value) in _PLAIN or isinstance(value, tuple | frozenset | re.Pattern)
        if constant or isinstance(value, _CODE) or _wrapped(value) is not None:
            return self.of(value)
        return self.of(type(value)) if _is_users_class(type(value)) else None


def _first(values: Iterable[T]) -> Iterator[T]:
    return (value for value, _ in zip(values, range(LONGEST), strict=False))


def _attributes(value: object) -> list[tuple[str, object]]:
    """The attributes of an object of the user's own class."""
    found = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return list(found.items())


def _is_users_class(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is None:  # of a notebook, or of Python
        return kind.__module__ == "__main__"
    return is_users(file)


def _wrapped(value: object) -> FunctionType | None:
    """The function in a wrapper of Python, as of `functools.cache` and `cached_property`."""
    for name in ("__wrapped__", "func"):
        if isinstance(function := inspect.getattr_static(value, name, None), FunctionType):
            return function
    return None


def _name(value: object) -> object:
    """The look of code that is not the user's: its name."""
    return "of others", getattr(value, "__module__", ""), getattr(value, "__qualname__", "")


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and all those within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
