"""Texts that are shown to people: characters that steer a terminal, or end a line, are visible.

Texts of errors hold values of records, that is of strangers. Shown as they are, they could write
lines of a log that nobody has logged, hide others, or give orders to a terminal:

    >>> visible("tea\\n12:00:00.000 info    run     all is well\\x1b[8m")
    'tea\\\\n12:00:00.000 info    run     all is well\\\\x1b[8m'

A text of ours may have several lines. All but the first are indented, so none looks like the first:

    >>> visible_lines("node-0 has failed\\n  at: f.py\\nTraceback\\x07")
    'node-0 has failed\\n  at: f.py\\n  Traceback\\\\x07'
"""

from __future__ import annotations

import re
import sys

_STEERING = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""Control characters but tab and line feed, ends of lines and paragraphs, orders of writing."""

_OTHERS = re.compile(f"[{_STEERING}]")
_ALL = re.compile(f"[{_STEERING}\n]")
_CONTINUED = re.compile(r"\n(?!  )")


def visible(text: str) -> str:
    """A text that is not ours, in one line; control characters but tabs are escapes."""
    return _ALL.sub(_escape, text)


def visible_lines(text: str) -> str:
    """A text whose line feeds are ours: the lines after the first are indented by two at least."""
    return _CONTINUED.sub("\n  ", _OTHERS.sub(_escape, text))


def visible_json(text: str) -> str:
    """A JSON text that means the same, in which these characters are escapes."""
    return _OTHERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def complain(text: str) -> None:
    """Print the error of a command to standard error."""
    print(f"driftline: {visible_lines(text)}", file=sys.stderr)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
