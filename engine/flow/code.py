"""Digests of a flow's code, to detect which operators changed between runs.

The digest of an operator covers its functions (`user_functions`), parameters and `fields`, the ttls
of its states, and the event time settings of a source. Of a function it covers instructions with
their constants, defaults and closed-over values. It also covers the user's own functions, classes
and variables that the code names: those in its module, in other modules of the user, and in modules
that a function itself imports. If code uses a module as a value, as in `getattr(module, name)`, the
digest covers the whole module. It ignores comments, docstrings, annotations, positions in files,
and names of local variables.

Of a container, the digest covers the items; of any other object, what `pickle` would store. Of an
object that cannot be pickled, it covers the type only, and `Code.unseen` names the object. It
covers the values that variables have when the flow is loaded. A cache that functions fill later
does not change the digest, because the digest of a flow is computed once.

The digest is the same in every process that loads the same code: it contains no addresses and no
hashes. Another version of Python compiles the same code to other instructions. Then `Code.python`
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

DEPTH_MAX = 60
"""Depth to which a digest follows values inside values, and functions that name functions."""

ITEMS_MAX = 10_000
"""Largest number of items of a list, dict or set that a digest covers. Of a longer list or dict, it
covers the first items; of a longer set none, as sets have no order."""

VALUES_MAX = 200_000
"""Largest number of values that the digest of an operator covers. Of all further values, it covers
only the types."""

ITEM_VALUES_MAX = 1000
"""Largest number of values that the digest of one item of a set covers."""

LONG_TEXT = 1000
"""A digest represents a str or bytes value that is longer than this by length and hash."""

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
"""If one of these instructions follows the load of a module, it names a variable of the module
(LOAD_CONST: in `getattr(module, "name")`). Otherwise the code uses the module as a value."""


class Code(Struct, frozen=True, array_like=True):
    """Digests of the code of a flow, as a run records them."""

    python: str = ""
    """Human-readable versions of Python and its bytecode, and the option -O. If they differ,
    digests cannot be compared."""
    operators: tuple[tuple[str, str], ...] = ()
    """(name of an operator, digest of its code), in the order of the flow."""
    unseen: tuple[str, ...] = ()
    """Human-readable names of values whose changes are not detected, with type and operator."""

    @property
    def text(self) -> str:
        """Short text that is the same for the same code on the same Python."""
        return f"{self.python} {_digest(self.operators)}"

    def changed(self, before: Code) -> list[str]:
        """Return the names of the operators in both codes whose digests differ.

        If `python` differs, the list is empty.
        """
        if self.python != before.python:
            return []
        digests = dict(before.operators)
        return [name for name, mine in self.operators if digests.get(name, mine) != mine]

    def log_unseen(self) -> None:
        """Log the values whose changes are not detected."""
        if self.unseen:
            fields = event_fields("changes-undetected", values=", ".join(self.unseen))
            log.info(
                "changes of these values are not detected: %s", ", ".join(self.unseen), extra=fields
            )


NO_CODE = Code()
"""Code of a run that recorded none."""


def code_of(flow: Flow) -> Code:
    """Return the code of a flow, as of the first call after its last operator was added."""
    if flow.code is None or flow.code[0] != len(flow.vertices):
        flow.code = len(flow.vertices), _compute_code(flow)
    code: Code = flow.code[1]
    return code


def _compute_code(flow: Flow) -> Code:
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    instructions = int.from_bytes(MAGIC_NUMBER[:2], "little")
    optimised = f" -{'O' * sys.flags.optimize}" if sys.flags.optimize else ""
    operators, unseen = [], []
    for vertex in flow.vertices:
        describer = _Describer()
        operators.append((vertex.name, _digest(describer.describe_vertex(vertex))))
        unseen += [f"{value} in {vertex.name!r}" for value in describer.unseen]
    version = f"{python} (instructions {instructions}){optimised}"
    return Code(version, tuple(operators), tuple(dict.fromkeys(unseen)))


def user_functions(vertex: Vertex) -> list[object]:
    """Return an operator's function, key function, `reduce` of each state, and timer function.

    A missing function is None, except that a missing timer function is left out.
    """
    reduces = [getattr(state, "reduce", None) for state in vertex.states]
    timer_functions = [] if vertex.on_timer is None else [vertex.on_timer]
    return [vertex.function, vertex.key, *reduces, *timer_functions]


def _digest(description: object) -> str:
    text = repr(description).encode(errors="backslashreplace")
    return blake2b(text, digest_size=8).hexdigest()


class _Describer:
    """Builder of *descriptions* of objects: nested tuples of plain values, for a digest.

    A repeated object is described by the number of its first occurrence, so cycles end.
    """

    def __init__(self, depth: int = 0, values_max: int = VALUES_MAX) -> None:
        self._numbers: dict[int, int] = {}
        self._kept_alive: list[object] = []
        """All objects with a number, kept alive so that no other object gets the same id."""
        self._depth = depth
        self._remaining_values = values_max
        self._names: list[str] = []
        """Names of the global variables on the path to the current value, outermost first."""
        self._modules: set[str] = set()
        """Names of the modules that are described because a function imports them."""
        self.unseen: list[str] = []
        """Names and types of values that cannot be described, as they cannot be pickled."""

    def describe_vertex(self, vertex: Vertex) -> object:
        """Return the description of an operator, with the code of its functions.

        Here the code of a library's function counts, too. A function of Python itself is described
        by its name.
        """
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
                parts.append(self._once(function, self._describe_function))
            else:
                parts.append(self.describe(function))
        return tuple(parts)

    def describe(self, value: object) -> object:
        """Return the description of any value."""
        if type(value) in _PLAIN:
            if isinstance(value, str | bytes) and len(value) > LONG_TEXT:
                return type(value).__name__, len(value), _digest(value)
            return type(value).__name__, value
        self._remaining_values -= 1
        if self._depth > DEPTH_MAX or self._remaining_values < 0:
            return "and more", type(value).__qualname__
        self._depth += 1
        try:
            return self._once(value, self._describe_new)
        except BaseException as error:  # from the user's own properties, iterators or `__repr__`
            reraise_interrupt(error)
            self.unseen.append(" ".join([*self._names[-1:], f"({type(value).__qualname__})"]))
            return "no look", type(value).__qualname__, type(error).__name__
        finally:
            self._depth -= 1

    def _once(self, value: object, describe: Callable[..., object]) -> object:
        if id(value) in self._numbers:
            return "again", self._numbers[id(value)]
        if not isinstance(value, tuple | frozenset):  # equal constants may be one object or two
            self._numbers[id(value)] = len(self._numbers)
            self._kept_alive.append(value)
        return describe(value)

    def _describe_new(self, value: object) -> object:
        if isinstance(value, dict | MappingProxyType):
            items = [item for pair in _first_items(value.items()) for item in pair]
            return self._describe_type(value), len(value), self._describe_all(items)
        if isinstance(value, list | tuple | deque):
            return self._describe_type(value), len(value), self._describe_all(_first_items(value))
        if isinstance(value, set | frozenset):
            members: Iterable[object] = value if len(value) <= ITEMS_MAX else ()
            descriptions = sorted(
                repr(_Describer(self._depth, ITEM_VALUES_MAX).describe(item)) for item in members
            )
            return self._describe_type(value), len(value), tuple(descriptions)
        return self._describe_callable(value) or self._describe_reduced(value)

    def _describe_type(self, value: object) -> object:
        class_ = type(value)
        return self.describe(class_) if _is_user_class(class_) else _foreign_name(class_)

    def _describe_all(self, values: Iterable[object]) -> tuple[object, ...]:
        return tuple(self.describe(value) for value in values)

    # Callables and types.

    def _describe_callable(self, value: object) -> object:
        if isinstance(value, FunctionType):
            file = value.__code__.co_filename
            return self._describe_function(value) if is_user_file(file) else _foreign_name(value)
        if isinstance(value, MethodType):
            return "method", self.describe(value.__func__), self.describe(value.__self__)
        if isinstance(value, functools.partial):
            return "partial", self._describe_all((value.func, value.args, value.keywords))
        if isinstance(value, staticmethod | classmethod):
            return type(value).__name__, self.describe(value.__func__)
        if isinstance(value, property):
            return "property", self._describe_all((value.fget, value.fset))
        if isinstance(value, type):
            return self._describe_class(value)
        if isinstance(value, BuiltinFunctionType) and not isinstance(value.__self__, ModuleType):
            return "method", value.__name__, self.describe(value.__self__)
        if isinstance(value, ModuleType):
            return "module", value.__name__
        if (function := _wrapped_function(value)) is not None:
            return _foreign_name(type(value)), self.describe(function)
        return _foreign_name(value) if inspect.isroutine(value) else None

    def _describe_function(self, function: FunctionType) -> object:
        cells = []
        for cell in function.__closure__ or ():
            try:
                cells.append(cell.cell_contents)
            except ValueError:  # the variable has no value yet
                cells.append(None)
        return (
            "function",
            self._describe_code(function.__code__),
            self._describe_all(cells),
            self._describe_all(function.__defaults__ or ()),
            self._describe_all(sorted((function.__kwdefaults__ or {}).items())),
            self._describe_globals(function.__code__, function.__globals__),
        )

    def _describe_class(self, value: type) -> object:
        if not _is_user_class(value):
            return _foreign_name(value)
        parts = [
            (name, self.describe(part))
            for name, part in sorted(vars(value).items())
            if isinstance(part, FunctionType) or not (name.startswith("__") or name == "_abc_impl")
        ]
        return "class", value.__qualname__, self._describe_all(value.__bases__), tuple(parts)

    def _describe_reduced(self, value: object) -> object:
        """Return the description of an object, made of what `pickle` would store.

        An object of Driftline's engine is described by its type only.
        """
        if type(value).__module__.startswith("driftline.engine."):
            return self._describe_type(value)
        reducer = copyreg.dispatch_table.get(type(value))
        reduced = reducer(value) if reducer else value.__reduce_ex__(2)
        if isinstance(reduced, str):  # the name of a global variable
            return self._describe_type(value), reduced
        make, arguments, state, *items = (*reduced, None, None, None)[:5]
        first_items = [_first_items(part) if part is not None else () for part in items]
        return self._describe_type(value), self._describe_all(
            (make, arguments, state, *map(tuple, first_items))
        )

    # Code objects.

    def _describe_code(self, code: CodeType) -> object:
        numbers = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
        instructions = [
            self._describe_instruction(code, instruction)
            for instruction in dis.get_instructions(code)
        ]
        return (*numbers, code.co_flags & _FLAGS, code.co_exceptiontable, tuple(instructions))

    def _describe_instruction(self, code: CodeType, instruction: dis.Instruction) -> object:
        """Return the description of an instruction, with its constant by value, not by index.

        A docstring would shift the indexes of later constants.
        """
        if instruction.opcode in _HAS_CONSTANT:
            value = instruction.argval
            description = (
                self._describe_code(value) if isinstance(value, CodeType) else self.describe(value)
            )
            return instruction.opname, description
        return (
            instruction.opname,
            instruction.argval if instruction.opcode in _HAS_NAME else instruction.arg,
        )

    def _describe_globals(self, code: CodeType, module_globals: dict[str, object]) -> object:
        """Return the descriptions of the globals that code uses, and of the modules it imports.

        Covers nested code objects, too; excludes globals that the code assigns.
        """
        codes = list(_nested_codes(code))
        instructions = [
            instruction for nested in codes for instruction in dis.get_instructions(nested)
        ]
        assigned = {
            instruction.argval
            for instruction in instructions
            if instruction.opname == "STORE_GLOBAL"
        }
        names = {
            instruction.argval
            for instruction in instructions
            if instruction.opname in _GLOBAL_LOADS
        } - assigned
        constants = {text for nested in codes for text in nested.co_consts if isinstance(text, str)}
        attributes = sorted(constants.union(*(nested.co_names for nested in codes)))
        used_as_values = {
            instruction.argval
            for instruction, following in pairwise(instructions)
            if instruction.opname in _GLOBAL_LOADS and following.opname not in _NAMES_ATTRIBUTE
        }
        described = [
            (
                name,
                self._describe_global(
                    name, module_globals[name], None if name in used_as_values else attributes
                ),
            )
            for name in sorted(names & {*module_globals})
        ]
        return described, [
            self._describe_import(name) for name in _imports(instructions, module_globals)
        ]

    def _describe_global(self, name: str, value: object, attributes: list[str] | None) -> object:
        """Return the description of a variable of a module.

        `attributes`: if the variable is a module, the names that the code may access in it. None:
        any name, as the code uses the module as a value, such as in `getattr(module, text)`.
        """
        if not isinstance(value, ModuleType):
            self._names.append(name)
            description = self.describe(value)
            self._names.pop()
            return description
        if not is_user_file(getattr(value, "__file__", None) or "<frozen "):
            return None
        if attributes is None:
            attributes = sorted(
                attribute for attribute in vars(value) if not attribute.startswith("__")
            )
        variables = (
            (attribute, vars(value)[attribute])
            for attribute in attributes
            if attribute in vars(value)
        )
        accessible = [
            (attribute, part) for attribute, part in variables if not isinstance(part, ModuleType)
        ]
        return [
            (attribute, self._describe_global(attribute, part, []))
            for attribute, part in accessible
        ]

    def _describe_import(self, name: str) -> object:
        """Return the description of a module that a function imports, and of its packages.

        Does not execute the module.
        """
        descriptions: list[object] = []
        path: Sequence[str] | None = None
        for prefix in accumulate(name.split("."), "{}.{}".format):
            spec = PathFinder.find_spec(prefix, path)
            if spec is None or not is_user_file(spec.origin or ""):
                break
            code = spec.loader.get_code(prefix) if isinstance(spec.loader, InspectLoader) else None
            if code is not None and prefix not in self._modules:
                self._modules.add(prefix)
                instructions = [
                    instruction
                    for nested in _nested_codes(code)
                    for instruction in dis.get_instructions(nested)
                ]
                imports = _imports(instructions, {"__package__": spec.parent})
                descriptions += [
                    prefix,
                    self._describe_code(code),
                    *map(self._describe_import, imports),
                ]
            if (path := spec.submodule_search_locations) is None:
                break
        return tuple(descriptions)


def _first_items(values: Iterable[T]) -> Iterator[T]:
    return (value for value, _ in zip(values, range(ITEMS_MAX), strict=False))


def _imports(
    instructions: Sequence[dis.Instruction], module_globals: Mapping[str, object]
) -> list[str]:
    """Return the names that instructions import: of modules, or of variables in modules.

    `module_globals`: the globals of the importing module.
    """
    imported = []
    for (level, names), (_, instruction) in pairwise(pairwise(instructions)):
        if instruction.opname == "IMPORT_NAME":
            package = str(module_globals.get("__package__") or "")
            with suppress(ImportError):
                name = resolve_name("." * level.argval + instruction.argval, package)
                imported += [name, *(f"{name}.{attribute}" for attribute in names.argval or ())]
    return sorted({*imported})


def _is_user_class(class_: type) -> bool:
    file = getattr(sys.modules.get(class_.__module__), "__file__", None)
    if file is None:  # in a notebook, or in Python itself
        return class_.__module__ == "__main__"
    return is_user_file(file)


def _wrapped_function(value: object) -> FunctionType | None:
    """Return the function in a `functools.cache`, `cached_property` or similar wrapper, or None."""
    for name in ("__wrapped__", "func"):
        if isinstance(function := inspect.getattr_static(value, name, None), FunctionType):
            return function
    return None


def _foreign_name(value: object) -> object:
    """Return the description of code that is not the user's: its module and name."""
    return "of others", getattr(value, "__module__", ""), getattr(value, "__qualname__", "")


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all those within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_codes(constant)
