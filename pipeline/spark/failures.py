"""What went wrong in a task of Spark, told as the same error that it was there."""

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
    """Raises DriftlineError for what a task raised; Unavailable for what Spark itself could not."""
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
            made = DriftlineError.__new__(kind)
            Exception.__init__(made, message.strip())
            return made
    found = _RAISED.findall(text)
    return Unavailable(f"Spark could not finish: {found[-1][0]}: {found[-1][1]}" if found else text)
