"""The pinned versions that the README's commands install support every promised Python."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent

LINES = (ROOT / "constraints.txt").read_text().splitlines()

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

OLDEST = PROJECT["requires-python"].removeprefix(">=") + ".0"

PINNED = [line for line in LINES if "==" in line and not line.startswith("#")]


@pytest.mark.parametrize("pinned", PINNED)
def test_pinned_version_supports_the_oldest_promised_python(pinned: str) -> None:
    """Debian 12 has 3.11.2: a package that asks for 3.11.5 would end both commands there."""
    name, _, version = pinned.partition(";")[0].strip().partition("==")
    try:
        found = metadata(name)
    except PackageNotFoundError:
        pytest.skip("it is not installed here")
    if found["Version"] != version:
        pytest.skip(f"version {found['Version']} is installed here")
    asks = found["Requires-Python"] or ""
    assert OLDEST in SpecifierSet(asks), f"{pinned} asks for Python {asks}"
