"""Loading: the FLOW of a command names a Flow, or a function that returns one."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.engine.errors import FlowError
from driftline.engine.flow.loading import load_flow

MODULE = """
from __future__ import annotations

from typing import TYPE_CHECKING

from driftline import Flow
from driftline.engine.flow.loading import load_flow  # `-> Flow`, too, but not of this module

if TYPE_CHECKING:
    from nowhere import Nothing

calls = []

def made(name: str = "made") -> Flow:
    calls.append(name)
    flow = Flow(name)
    flow.source("in").map(str).sink("out")
    return flow
"""


def flow_file(folder: Path, more: str = "") -> str:
    path = folder / "some.py"
    path.write_text(MODULE + more)
    return str(path)


def test_each_call_makes_a_new_flow(tmp_path: Path) -> None:
    where = flow_file(tmp_path)
    one, other = load_flow(f"{where}:made"), load_flow(f"{where}:made")
    assert one is not other
    assert one.vertices is not other.vertices


def test_load_flow_finds_the_only_function_annotated_to_return_a_flow(tmp_path: Path) -> None:
    more = """
def helper(flow: Flow) -> Flow:  # makes none by itself
    return flow

def other(x: Nothing = None) -> int:
    return 1

class Class:
    def method(self) -> Flow:
        return made()
"""
    assert load_flow(flow_file(tmp_path, more)).name == "made"


def test_flow_object_takes_precedence_over_functions(tmp_path: Path) -> None:
    where = flow_file(tmp_path, "\nready = made('ready')\n")
    assert load_flow(where).name == "ready"
    where = flow_file(tmp_path, "\nready = made('ready')\nflow = made('the one')\n")
    assert load_flow(where).name == "the one"


@pytest.mark.parametrize(
    ("more", "name", "expected_text"),
    [
        ("def second() -> Flow: return made()", "", r"2 functions that return a Flow \(made, sec"),
        ("a, b = made(), made()", "", r"has 2 flows \(a, b\): name one, as .*some.py:NAME"),
        ("del made", "", "has no flows: give it one"),
        ("", "mad", "has no 'mad': give the name of a Flow, or of a function"),
        ("first = made()", "fist", "has no 'fist': .*; its flows are: first"),
        ("", "Flow", "some.py:Flow is a class, not a Flow"),
        ("def wants(a, *b, c, d=1, **e): pass", "wants", "takes no arguments, but .* needs a, c"),
        ("def gives(): return [made()]", "gives", "some.py:gives returns a list, not a Flow"),
        ("def fails(): return 1 // 0", "fails", "some.py:fails fails: ZeroDivisionError: "),
        ("import sys; sys.exit(0)", "", r"ends the process while it is loaded, by sys.exit\(0\)"),
        ("def empty(): return Flow('e')", "empty", "flow 'e' is empty"),
    ],
)
def test_load_flow_explains_why_a_target_is_not_a_flow(
    more: str, name: str, expected_text: str, tmp_path: Path
) -> None:
    where = flow_file(tmp_path, f"\n{more}\n")
    with pytest.raises(FlowError, match=expected_text):
        load_flow(f"{where}:{name}" if name else where)
