"""Every example in a docstring does what it shows."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("acker", "barrier", "bench", "coordinator", "deploy", "engine", "index", "pipeline")


def _modules() -> list[str]:
    """The modules with examples."""
    files = [file for name in PACKAGES for file in sorted((ROOT / name).rglob("*.py"))]
    return [
        "driftline." + ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in files
        if ">>> " in file.read_text()
    ]


@pytest.mark.parametrize("name", _modules())
def test_the_examples_of_a_module_are_right(name: str) -> None:
    module = importlib.import_module(name.removesuffix(".__init__"))
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_calls_of_the_face_have_examples() -> None:
    assert {f"driftline.deploy.api.{name}" for name in ("run", "simulate", "flowtest")} <= {
        *_modules()
    }
