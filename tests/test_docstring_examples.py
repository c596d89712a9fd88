"""The examples in docstrings are true."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("engine", "acker", "barrier", "coordinator", "index")
MODULES = [
    path.relative_to(ROOT).with_suffix("").parts
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if "\n    >>> " in path.read_text() or "\n>>> " in path.read_text()
]


@pytest.mark.parametrize("parts", MODULES, ids=".".join)
def test_the_examples_of_a_module_are_true(parts: tuple[str, ...]) -> None:
    results = doctest.testmod(import_module(".".join(("driftline", *parts))))
    assert results.attempted
    assert not results.failed
