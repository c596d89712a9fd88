"""Human-readable texts: numbers, times, exceptions, and untrusted values.

>>> counted(1, "bad record"), counted(2, "bad record")
('1 bad record', '2 bad records')
>>> truncate("to be or not to be", 5)
'to be… (18 characters)'
>>> format_size(0), format_size(4200), format_size(33_554_432)
('0 kB', '4 kB', '33.6 MB')
>>> format_time(726)
'record 726'
>>> did_you_mean("wordcount", ["word-count", "sums"])
" (did you mean 'word-count'?)"

Error texts contain values of records, which are untrusted. Printed unchanged, they could forge log
lines, hide others, or send control sequences to a terminal:

>>> escape_controls("tea\\n12:00:00.000 info    run     all is well\\x1b[8m")
'tea\\\\n12:00:00.000 info    run     all is well\\\\x1b[8m'

The engine's own text may have several lines. All but the first are indented, so that they do not
look like the first line of a log entry:

>>> escape_lines("node-0 has failed\\n  at: f.py\\nTraceback\\x07")
'node-0 has failed\\n  at: f.py\\n  Traceback\\\\x07'

The text of an exception of user code is the same in every process and replay, so it contains no
memory addresses. An exception is user code, too: its `__str__` may raise anything.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from difflib import get_close_matches

# Numbers, long texts, times, names ---------------------------------------------------------------


def counted(number: float, what: str) -> str:
    """Format a number and a noun; `what`: the singular of a noun whose plural ends in s."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def format_size(size: int) -> str:
    """Format a number of bytes."""
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


def truncate(text: str, limit: int) -> str:
    """Return a text; if it is longer than `limit` characters, cut it and append its length."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


_CLOCK_FROM, _CLOCK_UNTIL = 10**14, 253_000_000_000_000_000
"""Range of clock times, in microseconds: from 1973 to 9987. Record numbers of files are smaller."""


def is_clock_time(time: int) -> bool:
    """Return whether a label's time is a clock time, at which a live record arrived."""
    return _CLOCK_FROM <= time < _CLOCK_UNTIL


def format_time(time: int) -> str:
    """Describe a label's time: a record number, a local date and time, the beginning or the end."""
    if time <= 0:
        return "the beginning"
    if time < _CLOCK_FROM:
        return f"record {time}"
    if is_clock_time(time):
        seconds, microseconds = divmod(time, 1_000_000)
        moment = datetime.fromtimestamp(seconds).replace(microsecond=microseconds)
        return moment.isoformat(" ", "microseconds")
    return "the end"


def format_label(label: tuple[int, ...]) -> str:
    """Format a label, with the time of arrival if its record is live.

    >>> format_label((50, 0, 2))
    'label [50, 0, 2]'
    """
    arrival = f" ({format_time(label[0])})" if is_clock_time(label[0]) else ""
    return f"label {list(label)}{arrival}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question to append to an error about an unknown name; "" if none is similar."""
    similar = get_close_matches(word.replace("_", "-"), list(known), 1)
    return f" (did you mean {similar[0]!r}?)" if similar else ""


# Control characters ------------------------------------------------------------------------------

_CONTROL_CHARACTERS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""Control characters except tab and line feed; Unicode's line and paragraph separators; controls of
writing direction."""

_CONTROLS = re.compile(f"[{_CONTROL_CHARACTERS}]")
_CONTROLS_AND_LINE_FEED = re.compile(f"[{_CONTROL_CHARACTERS}\n]")
_UNINDENTED_LINE = re.compile(r"\n(?!  )")


def escape_controls(text: str) -> str:
    """Format an untrusted text in one line; escape control characters except tabs."""
    return _CONTROLS_AND_LINE_FEED.sub(_escape, text)


def escape_lines(text: str) -> str:
    """Format a text with trusted line feeds.

    Lines after the first get an indent of two spaces, unless they have one.
    """
    return _UNINDENTED_LINE.sub("\n  ", _CONTROLS.sub(_escape, text))


def escape_json(text: str) -> str:
    """Escape control characters in a JSON text, without changing its value."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_error(text: str) -> None:
    """Print the error that ends a command to standard error, as click prints wrong usage."""
    print_note(f"Error: {text}")


def print_note(text: str) -> None:
    """Print a text about the progress of a command to standard error."""
    print(escape_lines(text), file=sys.stderr)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


# Exceptions and values of user code --------------------------------------------------------------

ERROR_CHARS_MAX = 2000
"""Maximum number of characters of an exception's text in an error."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def escape_file_name(name: str) -> str:
    """Escape those characters of a name, for example of a sink, that a file name cannot contain."""
    invalid = r'^\.|[%/\\:*?"<>|\x00-\x1f\x7f\ud800-\udfff]'
    return re.sub(invalid, lambda match: f"%{ord(match[0]):02X}", name)


def reraise_interrupt(error: BaseException) -> None:
    """Re-raise a KeyboardInterrupt. The caller treats other exceptions as failures of user code."""
    if isinstance(error, KeyboardInterrupt):
        raise error


def describe_exception(error: BaseException) -> str:
    """Return type and text of an exception."""
    return f"{type(error).__name__}: {text_of(error)}"


def text_of(error: BaseException) -> str:
    """Return the text of an exception, shortened, and equal in every process and replay."""
    if isinstance(error, RecursionError):  # Python's own text depends on where the stack ended
        return "maximum recursion depth exceeded"
    try:
        return truncate(strip_addresses(str(error)), ERROR_CHARS_MAX)
    except BaseException as second_error:
        reraise_interrupt(second_error)
        return f"making its text raises {type(second_error).__name__}"


def reason_of(error: OSError) -> str:
    """Return the file and reason of a system error, or the text of one that Python code raised."""
    if error.strerror is None:
        return text_of(error) or type(error).__name__
    return f"{error.filename or 'the system'}: {error.strerror}"


def safe_repr(show: Callable[[object], str], value: object) -> str:
    """Format a value with `show`, such as `repr`, even if the value's own `__repr__` raises."""
    try:
        return show(value)
    except BaseException as error:
        reraise_interrupt(error)
        return f"<a {type(value).__name__} whose repr raises {type(error).__name__}>"


def strip_addresses(text: str) -> str:
    """Remove memory addresses from a text, and escape characters that UTF-8 cannot encode."""
    return _ADDRESS.sub("", text).encode(errors="backslashreplace").decode()
