"""Errors name a line of user code, for failing functions and for flows that cannot be loaded."""

from __future__ import annotations

import json.decoder
import sys
from pathlib import Path

import msgpack
import pytest

import driftline.engine.reference
from driftline import FlowTest, run_reference
from driftline.engine.errors import FlowError
from driftline.engine.flow.loading import load_flow
from driftline.engine.operators.context import Failure
from driftline.engine.operators.user_code import is_user_file

HELPER = """
import json
from dataclasses import dataclass

@dataclass(order=True)
class Pair:
    one: object

def parse(text):
    return json.loads(text)

def deeper(n):
    return deepest(n + 1)

def deepest(n):
    return deeper(n + 1)

def compared(a, b):
    return sorted([Pair(a), Pair(b)])
"""

FAILING = [
    ("helper.parse('no json')", "helper_of_test.py:10, in parse: return json.loads(text)"),
    ("helper.compared(1, 'b')", "helper_of_test.py:19, in compared: return sorted"),
    ("json.loads('no json')", "failing.py:4, in fail: return json.loads('no json')"),
    ("helper.deeper(0)", "failing.py:4, in fail: return helper.deeper(0)"),
]


def failure_of(folder: Path, call: str) -> Failure:
    """Return the failure of a function that evaluates `call`."""
    (folder / "helper_of_test.py").write_text(HELPER)
    (folder / "failing.py").write_text(
        "import json\nimport helper_of_test as helper\ndef fail(x):\n"
        f"    return {call}\n"
        "from driftline import Flow\nflow = Flow('failing')\n"
        "flow.source('in').map(fail).sink()\n"
    )
    [item] = run_reference(load_flow(str(folder / "failing.py")), [[1]], dead_letters=True)
    return Failure.from_payload(item.value)


@pytest.mark.parametrize(("call", "line"), FAILING)
def test_failure_names_the_innermost_line_of_user_code(
    call: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "helper_of_test", raising=False)
    assert failure_of(tmp_path, call).line.startswith(line.partition(":")[0])  # in any folder
    assert line.partition(":")[2] in failure_of(tmp_path, call).line


def test_recursion_error_text_does_not_depend_on_the_stack_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)

    def at(depth: int) -> Failure:
        return at(depth - 1) if depth else failure_of(tmp_path, "helper.deeper(0)")

    assert len({at(depth) for depth in range(4)}) == 1


BUILT = [
    ("flow.source('in').key_by('k').map(str).sink()", 3, "needs .scan"),
    ("flow.source('in').key_by(0).scan(str, int).sink()", 3, "not a state declaration"),
    ("flow.source('a')\nflow.source('a').sink()", 4, "already has a source named"),
    ("import no_such_module", 3, "No module named"),
    ("undefined", 3, "NameError"),
    ("import json\njson.loads('')", 4, "JSONDecodeError"),
    ("def f(:\n    pass", 3, "SyntaxError"),
    ("pass", 2, "is empty"),
    ("flow.source('in').map(str)", 3, "has no sink"),
    ("in_ = flow.source('in')\nin_.map(str)\nin_.sink()", 4, "leads nowhere"),
]


@pytest.mark.parametrize(
    ("text", "number", "expected_text"), BUILT, ids=[case[2] for case in BUILT]
)
def test_error_of_building_or_loading_a_flow_names_the_line(
    text: str, number: int, expected_text: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(f"from driftline import Flow\nflow = Flow('f')\n{text}\n")
    with pytest.raises(FlowError, match=expected_text) as error:
        load_flow(str(path))
    assert f"\n  at: {path}:{number}" in str(error.value)


def test_error_in_a_flow_function_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("from driftline import Flow\ndef make():\n    Flow('f').source('in').scan(1)\n")
    with pytest.raises(FlowError, match="needs a key") as error:
        load_flow(f"{path}:make")
    assert f"\n  at: {path}:3, in make" in str(error.value)


def test_library_and_driftline_files_are_not_user_code() -> None:
    for module in (json.decoder, msgpack, driftline.engine.reference):
        assert not is_user_file(str(module.__file__))
    assert not is_user_file("<frozen importlib._bootstrap>")
    assert is_user_file(__file__)
    assert is_user_file("<stdin>")


NO_LINE_OF_A_FUNCTION = [
    ("stream.key_by('nokey').scan(str.upper, ValueState('x'))", "KeyError: 'nokey'"),
    ("stream.map(len).map(math.sqrt).map(str.upper)", "TypeError"),
    ("stream.key_by(len).scan(math.sqrt, ValueState('x'))", "TypeError"),
]


@pytest.mark.parametrize(("text", "error"), NO_LINE_OF_A_FUNCTION)
def test_error_names_the_operator_line_if_the_function_has_none(
    text: str, error: str, tmp_path: Path
) -> None:
    path = tmp_path / "made.py"
    path.write_text(
        "import math\nfrom driftline import Flow, ValueState\nflow = Flow('made')\n"
        f"stream = flow.source('in')\n{text}.sink()\n"
    )
    flow = load_flow(str(path))
    [item] = run_reference(flow, [[{"a": 1}]], dead_letters=True)
    failure = Failure.from_payload(item.value)
    assert failure.error.startswith(error)
    assert failure.line == f"{path.name}:5, in <module>: {text}.sink()"
    with FlowTest(flow, dead_letters=True) as test:
        test.send({"a": 1})
        assert test.failures == [failure]
