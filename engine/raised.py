"""The words for an exception of user code: the same in every process and replay.

An exception is user code, too: its `__str__` may raise anything. Addresses in memory are left out.
"""

import re
from collections.abc import Callable

from driftline.engine.counted import beginning

ERROR_SHOWN = 2000
"""Characters of an exception's text that an error shows."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def let_through(error: BaseException) -> None:
    """Raise a KeyboardInterrupt again. Any other exception of user code is a failure of it."""
    if isinstance(error, KeyboardInterrupt):
        raise error


def raised(error: BaseException) -> str:
    """Type and text of an exception."""
    return f"{type(error).__name__}: {text_of(error)}"


def text_of(error: BaseException) -> str:
    """The text of an exception."""
    if isinstance(error, RecursionError):  # Python's own text depends on where the stack ended
        return "maximum recursion depth exceeded"
    try:
        return beginning(stable(str(error)), ERROR_SHOWN)
    except BaseException as another:
        let_through(another)
        return f"making its text raises {type(another).__name__}"


def reason_of(error: OSError) -> str:
    """Why the system refuses: its words, with the file; or the text, if a function has raised."""
    if error.strerror is None:
        return text_of(error) or type(error).__name__
    return f"{error.filename or 'the system'}: {error.strerror}"


def shown_by(show: Callable[[object], str], value: object) -> str:
    """A value as text, by a kind of `repr`: the value's own may raise anything."""
    try:
        return show(value)
    except BaseException as error:
        let_through(error)
        return f"<a {type(value).__name__} whose repr raises {type(error).__name__}>"


def stable(text: str) -> str:
    """The text without addresses in memory, and with escapes for characters that UTF-8 lacks."""
    return _ADDRESS.sub("", text).encode(errors="backslashreplace").decode()
