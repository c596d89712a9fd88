"""Results of commands as JSON files, even of failed ones; a check that a file can be written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from driftline.engine.errors import DriftlineError, Unavailable
from driftline.engine.texts import reason_of


def write_json(file: Path | None, content: Mapping[str, object], indent: int | None = None) -> None:
    """Write one JSON object, unless `file` is None. Raises ValueError for nan and inf; OSError."""
    if file is not None:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=indent)
        file.write_text(text + "\n", encoding="utf-8")


@contextmanager
def write_on_error(file: Path | None, failed: Mapping[str, object]) -> Iterator[None]:
    """Remove the result of an earlier call. If the command fails, write the error to the file.

    Only a DriftlineError or an OSError is written, except a BrokenPipeError. `failed`: fields to
    write beside `error`. Only a regular file is removed; a pipe stays. Raises Unavailable if the
    file can be neither removed nor emptied.
    """
    if file is not None and file.is_file():
        _remove(file)
    try:
        yield
    except BrokenPipeError:
        raise
    except (DriftlineError, OSError) as error:
        with suppress(OSError):  # the command's error matters more
            write_json(file, {"error": sentence_of(error), **failed})
        raise


def sentence_of(error: DriftlineError | OSError) -> str:
    """Return the text of an error that ends a command, for the user."""
    return reason_of(error) if isinstance(error, OSError) else str(error)


def _remove(file: Path) -> None:
    """Remove a file; if that fails, empty it. Raises Unavailable."""
    try:
        file.resolve().unlink()
    except OSError:  # the directory may belong to another user
        try:
            file.write_bytes(b"")
        except OSError as error:
            raise Unavailable(f"cannot write {file}: {error.strerror}") from None


def make_writable(file: Path) -> None:
    """Create the directory of a file. Raises Unavailable if the file cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"cannot write {file}: {error.strerror}") from None
    if file.is_dir():
        raise Unavailable(f"cannot write {file}: it is a directory")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise Unavailable(f"cannot write {file}: not permitted")
