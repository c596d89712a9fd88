"""Tells the user's own code from that of Python, of installed libraries and of Driftline.

Errors name a line of the user's own code; and only changes of that code count as changes of a flow.
"""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

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
    if not chosen:
        return ""
    frame = chosen[0 if isinstance(error, RecursionError) else -1]
    return f"{frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}".removesuffix(": ")
