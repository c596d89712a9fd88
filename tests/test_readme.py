"""The README and the architecture page are correct."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from driftline import COMMANDS, run_reference
from driftline.engine.flow.loading import load_flow

ROOT = Path(__file__).resolve().parents[1]


def test_readme_example_counts_words() -> None:
    flow = load_flow(str(ROOT / "examples" / "wordcount.py"))
    items = list(run_reference(flow, [[{"text": "a b a"}]]))
    assert [item.value for item in items] == [("a", 1), ("b", 1), ("a", 2)]


def blocks_of_python() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_readme_flow_equals_the_example() -> None:
    docstring, _, code = (ROOT / "examples" / "wordcount.py").read_text().partition("\n\n")
    assert docstring.startswith('"""')
    assert blocks_of_python()[0] == code


def test_readme_test_of_the_flow_passes(tmp_path: Path) -> None:
    flow, test = blocks_of_python()
    (tmp_path / "wordcount.py").write_text(flow)
    (tmp_path / "test_wordcount.py").write_text(test)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "test_wordcount.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_outputs_of_two_nodes_equal_the_reference(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "wordcount.py", tmp_path)
    text = (ROOT / "README.md").read_text()
    [runs] = re.findall(r"```\n(yes .*?driftline run wordcount.py.*?)```", text, re.DOTALL)
    [compare] = re.findall(r"```\n(jq .*?)```", text, re.DOTALL)
    commands = runs.replace(" --kill-every 2", "").replace("20000", "30") + compare
    assert len(commands.splitlines()) == 6
    program = commands.replace("driftline ", f"{sys.executable} -m driftline ")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(["sh", "-e", "-c", program], cwd=tmp_path, env=environment, check=True)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 180


def test_every_named_command_exists() -> None:
    named = set(re.findall(r"driftline ([a-z]+) ", (ROOT / "README.md").read_text()))
    assert named - {"import"} <= set(COMMANDS)
    assert "run" in named


def test_importing_driftline_loads_nothing_that_a_flow_does_not_need() -> None:
    program = (
        "import sys; from driftline import Flow, MapState, run_reference; "
        "print({'zmq', 'lmdb', 'rich', 'click'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


PACKAGES = {path.name for path in (ROOT / "driftline").iterdir() if path.is_symlink()}


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_named_file_exists(page: str) -> None:
    named = re.findall(r"`([a-z_]+/[\w./]*)`", (ROOT / page).read_text())
    ours = [name for name in named if name.partition("/")[0] in PACKAGES | {"tests", "examples"}]
    assert [name for name in ours if not (ROOT / name).exists()] == []
    assert ours or page == "README.md"


def test_every_class_function_and_module_of_the_architecture_exists() -> None:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    text = "\n".join(path.read_text() for path in files)
    defined = set(re.findall(r"\b(?:class|def) (\w+)", text)) | {path.name for path in files}
    page = (ROOT / "ARCHITECTURE.md").read_text()
    modules = re.findall(r"`(\w+\.py)`", page)
    names = re.findall(r"`([A-Z]\w*[a-z]\w*(?:\.\w+)?)`", page)
    assert len(names) > 10
    parts = [part for name in names for part in name.split(".")]
    assert [name for name in (*modules, *parts) if name not in defined] == []
