"""The examples in docstrings have the shown results."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = sorted(path.name for path in (ROOT / "driftline").iterdir() if path.is_symlink())
WITH_EXAMPLES = [
    ".".join(("driftline", *path.relative_to(ROOT).with_suffix("").parts))
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_in_docstrings(module: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert tried
    assert not failed
