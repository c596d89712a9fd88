"""What to do where a function does not know its argument: values travel without their class.

Type checkers do not see it, as the types of streams are those that functions return.
"""

from __future__ import annotations

_LIST = "a list arrives as a tuple: list(x) is one again"
_NAMED = (
    "a NamedTuple arrives as a plain tuple: take a position of it, as in x[0], or make it again, "
    "as in Name(*x)"
)
_DICT = (
    "a subclass of dict arrives as a plain dict: take a key of it, as in x['key'], or make it "
    "again, as in Name(x)"
)


def hint_for(error: BaseException) -> str:
    """A hint at the end of an error's text; empty for an error that has another cause."""
    hint = _of_attribute(error) if type(error) is AttributeError else _of_item(error)
    return f" ({hint})" if hint else ""


def _of_attribute(error: AttributeError) -> str:
    if type(error.obj) is tuple:
        return _LIST if hasattr(list, error.name or "") else _NAMED
    return _DICT if type(error.obj) is dict else ""


def _of_item(error: BaseException) -> str:
    """For what lists can do and tuples cannot: Python says it in no other form than its text."""
    if type(error) is not TypeError or not error.args:
        return ""
    cannot = "'tuple' object does not support item", "'tuple' object doesn't support item"
    return _LIST if str(error.args[0]).startswith(cannot) else ""
