"""Tells the user's own code from that of Python, of installed libraries and of Driftline.

Errors name a line of the user's own code; and only changes of that code count as changes of a flow.
"""

from __future__ import annotations

import dis
import sys
import sysconfig
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType, FunctionType

_DRIFTLINE = Path(__file__).parents[2]
_OTHERS = tuple(
    f"{folder}/" for folder in (_DRIFTLINE, *map(sysconfig.get_path, ("stdlib", "platstdlib")))
)
_INSTALLED = {"site-packages", "dist-packages"}
_ENGINE = f"{_DRIFTLINE / 'engine'}/"


def is_users(file: str) -> bool:
    """Whether a file, as Python names it in tracebacks, holds the user's own code."""
    if file.startswith((*_OTHERS, "<frozen ")):
        return False
    return not _INSTALLED.intersection(Path(file).parts)


def is_of_driftline(file: str) -> bool:
    """Whether a file is part of Driftline: a function of ours has refused what it was given."""
    return file.startswith(_OTHERS[0])


def is_of_python(file: str) -> bool:
    """Whether a file is part of Python itself."""
    return file.startswith((*_OTHERS[1:], "<frozen ")) and not _INSTALLED & {*Path(file).parts}


def line_of(error: BaseException, *, of_libraries: bool = True) -> str:
    """The innermost line of the user's own code that an exception has come through.

    Without such a line: that of the innermost library, unless `of_libraries` is False. Empty if
    there is none. Of a RecursionError it is the outermost line, as the innermost one depends on the
    depth of the stack; of a SyntaxError the line that is wrong.
    """
    if isinstance(error, SyntaxError) and error.filename and is_users(error.filename):
        return f"{error.filename}:{error.lineno}: {(error.text or '').strip()}".rstrip(": ")
    trace = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in trace if not frame.filename.startswith(_ENGINE)]
    own = [frame for frame in frames if is_users(frame.filename)]
    # Methods that `dataclasses` has made have no line that could be shown.
    chosen = [frame for frame in own if frame.line] or own or (frames if of_libraries else [])
    return _shown(chosen[0 if isinstance(error, RecursionError) else -1]) if chosen else ""


def line_of_caller() -> str:
    """The innermost line of the user's own code that is calling Driftline now.

    Without such a line: that of the library that does. Empty if there is none.
    """
    frames = []
    frame: FrameType | None = sys._getframe()
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    # Further out is who loads the module, and who runs the flow.
    while frame is not None and not _is_ours(frame) and not _is_frozen(frame):
        frames.append(frame)
        frame = frame.f_back
    own = [frame for frame in frames if is_users(frame.f_code.co_filename)]
    for chosen in own or frames:
        return _shown(traceback.extract_stack(chosen, limit=1)[0])
    return ""


def _is_ours(frame: FrameType) -> bool:
    """Whether the frame is of the engine; also of a method that `dataclasses` has made there."""
    return str(frame.f_globals.get("__name__")).startswith("driftline.engine.")


def _is_frozen(frame: FrameType) -> bool:
    """Whether the frame is of Python's import system."""
    return frame.f_code.co_filename.startswith("<frozen ")


def variables_of(function: object) -> dict[str, object]:
    """The variables of its module and of outer functions that a function uses, and their values."""
    if not isinstance(function, FunctionType):
        return {}
    steps = dis.get_instructions(function.__code__)
    used = {step.argval for step in steps if step.opname == "LOAD_GLOBAL"}
    found = {name: value for name, value in function.__globals__.items() if name in used}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # the variable has no value yet
            found[name] = cell.cell_contents
    return found


def as_line(line: str) -> str:
    """A line of the user's own code as the last line of an error; empty without one."""
    return f"\n  at: {line}" if line else ""


def _shown(frame: traceback.FrameSummary) -> str:
    return f"{frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}".removesuffix(": ")
