"""Results as JSON files, and the check that a file can be written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from driftline.engine.errors import Unavailable


def write_json(file: Path | None, content: Mapping[str, object], indent: int | None = None) -> None:
    """Write one JSON object; None: no file. Raises ValueError for NaN, which JSON lacks."""
    if file is not None:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=indent)
        file.write_text(text + "\n", encoding="utf-8")


def make_writable(file: Path) -> None:
    """Make the folder of a file. Raises Unavailable if the file could not be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"cannot write {file}: {error.strerror}") from None
    if file.is_dir():
        raise Unavailable(f"cannot write {file}: it is a directory")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise Unavailable(f"cannot write {file}: not permitted")
