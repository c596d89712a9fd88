"""Errors of Spark tasks, raised again in the driver as the errors that the tasks raised."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from driftline.engine import errors
from driftline.engine.errors import DriftlineError, Unavailable

_RAISED = re.compile(
    r"^(?:[\w.]+\.)?(\w+): (.*?)(?=\n\n|\n\tat |\n *During handling|\Z)", re.M | re.S
)


@contextmanager
def explained() -> Iterator[None]:
    """Turn Spark's errors into the DriftlineError that a task raised, or else into Unavailable."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _as_ours(str(error)) from None


def _as_ours(text: str) -> DriftlineError:
    for name, message in reversed(_RAISED.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, DriftlineError):
            error = DriftlineError.__new__(kind)
            Exception.__init__(error, message.strip())
            return error
    raised = _RAISED.findall(text)
    if not raised:
        return Unavailable(text)
    name, message = raised[-1]
    return Unavailable(f"Spark could not finish: {name}: {message}")
