"""Tells a Ctrl-C from an exception that user code raises itself.

User code may raise anything, also a KeyboardInterrupt: then it has failed, as with any other
exception. But where a flow runs in the process of its caller, a signal may interrupt user code:
then the exception is for the caller. Node processes take no notice of SIGINT, so there it never is.
"""

from __future__ import annotations

import signal
from dis import opmap
from traceback import walk_tb

_RAISE = opmap["RAISE_VARARGS"]


def let_through(error: BaseException) -> None:
    """Raises the error if a signal has raised it, and not the code that it has come through."""
    if isinstance(error, KeyboardInterrupt) and _is_of_a_signal(error):
        raise error


def _is_of_a_signal(error: KeyboardInterrupt) -> bool:
    """Python's own handler raises between two instructions; any other one is a function."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        return _innermost_instruction(error) != _RAISE
    code = getattr(handler, "__code__", None)
    return any(frame.f_code is code for frame, _ in walk_tb(error.__traceback__))


def _innermost_instruction(error: BaseException) -> int:
    """The instruction at which an exception was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] if trace is not None else _RAISE
