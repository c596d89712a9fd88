"""Code digests: equal in every process, and different if the code behaves differently."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import invalidate_caches
from pathlib import Path

from driftline import Flow
from driftline.engine.flow.code import Code, code_of
from driftline.engine.flow.loading import load_flow

ROOT = Path(__file__).resolve().parents[3]

HELPERS = """
import json

LIMIT = 3

def clean(text):
    return text.strip()

def unused(text):
    return text
"""

LAZY = """
def lazy(text):
    return text.title()
"""

FLOW = '''
import functools
import operator
import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from threading import Lock
from types import MappingProxyType

from driftline import Flow, ListState, ReducingState

import digest_helpers
from digest_helpers import clean

STOP = {"the", "a"}
WORDS = frozenset({"x", "yy", "zzz", "wwww"})
LENGTH = 3
PATTERN = re.compile("[a-z]+")

@dataclass
class Threshold:
    least: float

    def __call__(self, word):
        return len(word) >= self.least

@dataclass
class Least:
    length: int

class Splitter:
    __slots__ = ("lock", "separator")

    def __init__(self, separator):
        self.separator = separator
        self.lock = object()

    def split(self, text):
        return text.split(self.separator)

def even(n):
    return n == 0 or odd(n - 1)

def odd(n):
    return n != 0 and even(n - 1)

@functools.cache
def known(word):
    return word in WORDS

def split(text, limit=LENGTH, *, lower=False):
    """Words of a text."""
    # of which there are many
    def inner(word):
        return word[:limit] + "!"
    return [inner(word) for word in PATTERN.findall(text) if known(word)]

def logged(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper

@logged
def decorated(text):
    return clean(text), digest_helpers.LIMIT

DAY, RATE, PART, FOLDER = date(2026, 1, 2), Decimal("0.19"), Fraction(1, 3), Path("/data")
RANGE, PROXY, LEAST = range(7), MappingProxyType({"a": 71}), Least(5)
TABLE, NAMES = {"b": 72}, {"zebra", "yak", "xerus"}
LOCK, CACHE = Lock(), {}

def variables(word):
    from digest_lazy import lazy
    CACHE[word] = DAY, RATE, PART, FOLDER, RANGE, PROXY, LEAST, TABLE, NAMES
    with LOCK:
        return lazy(word), getattr(digest_helpers, "LIMIT")

def count(word, total, seen):
    return word, total.add(1), even(3)

flow = Flow("digests")
(
    flow.source("lines", fields=("text", "n"))
    .map(operator.itemgetter(0), name="first")
    .map(decorated, name="decorated")
    .map(functools.partial(split, limit=4), name="partial")
    .flat_map(Splitter("-").split, name="bound")
    .filter(Threshold(2), name="callable")
    .map(lambda word, closed={"b": STOP, "a": {1.5, None, "s"}}: (word, closed), name="default")
    .map(variables, name="variables")
    .key_by(lambda word: word[0])
    .scan(
        count,
        ReducingState("total", lambda a, b: a + b),
        ListState("seen"),
        name="count",
        fields=("word", "n", "even"),
    )
    .sink("out")
)
'''


def digests(folder: Path, flow: str = FLOW, helpers: str = HELPERS, lazy: str = LAZY) -> Code:
    """Return the code digests of a flow that is written to its own folder, with helper modules."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "digest_helpers.py").write_text(helpers)
    (folder / "digest_lazy.py").write_text(lazy)
    (folder / "flow.py").write_text(flow)
    invalidate_caches()
    sys.modules.pop("digest_helpers", None)
    sys.path.insert(0, str(folder))
    try:
        return code_of(load_flow(str(folder / "flow.py")))
    finally:
        sys.path.remove(str(folder))


def test_the_same_code_has_the_same_digest_in_every_process(tmp_path: Path) -> None:
    here = digests(tmp_path / "here")
    digests(tmp_path / "there")
    script = (
        "from driftline.engine.flow.code import code_of\n"
        "from driftline.engine.flow.loading import load_flow\n"
        "ballast = [object() for _ in range(7)]\n"
        "print(code_of(load_flow('flow.py')).text)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path / "there",
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == here.text


CHANGED = [
    ("itemgetter(0)", "itemgetter(1)", "first"),
    ("limit=4", "limit=5", "partial"),
    ("LENGTH = 3", "LENGTH = 2", "partial"),
    ('+ "!"', '+ "?"', "partial"),
    ('"wwww"', '"vvvv"', "partial"),
    ('compile("[a-z]+")', 'compile("[A-Z]+")', "partial"),
    ('Splitter("-")', 'Splitter("+")', "bound"),
    ("split(self.separator)", "split()", "bound"),
    ("len(word) >= self", "len(word) > self", "callable"),
    ('"a": {1.5, None, "s"}', '"a": {1.5, None, "t"}', "default"),
    ("lambda word: word[0]", "lambda word: word[-1]", "count"),
    ("a + b", "a * b", "count"),
    ("return n != 0 and even", "return n > 0 and even", "count"),
    ('"n", "even")', '"n", "odd")', "count"),
    ("2026, 1, 2", "2026, 1, 3", "variables"),
    ('"0.19"', '"0.16"', "variables"),
    ("Fraction(1, 3)", "Fraction(1, 4)", "variables"),
    ('"/data"', '"/other"', "variables"),
    ("range(7)", "range(8)", "variables"),
    ('"a": 71', '"a": 70', "variables"),
    ("Least(5)", "Least(6)", "variables"),
    ('"b": 72', '"b": 73', "variables"),
    ('"yak"', '"yeti"', "variables"),
]


def test_code_change_of_an_operator_changes_only_its_digest(tmp_path: Path) -> None:
    before = digests(tmp_path / "before")
    for number, (old, new, operator) in enumerate(CHANGED):
        assert FLOW.count(old) == 1
        after = digests(tmp_path / str(number), FLOW.replace(old, new))
        # a sink's digest includes the fields of the operator before it
        changed = [name for name in after.changed(before) if name != "out"]
        assert changed == [operator], new
        assert after.text != before.text


def test_code_change_in_an_imported_user_module_changes_the_digest(tmp_path: Path) -> None:
    before = digests(tmp_path / "a")
    for old, new in (("text.strip()", "text.lstrip()"), ("LIMIT = 3", "LIMIT = 4")):
        after = digests(tmp_path / new, helpers=HELPERS.replace(old, new))
        assert after.changed(before)[0] == "decorated"
    assert after.changed(before) == ["decorated", "variables"], "by getattr"
    after = digests(tmp_path / "lazy", lazy=LAZY.replace("title", "upper"))
    assert after.changed(before) == ["variables"], "by an import in the function"


def test_module_used_as_a_value_counts_as_a_whole(tmp_path: Path) -> None:
    flow = """
import digest_helpers
from driftline import Flow

flow = Flow("by name")
flow.source("names").map(lambda name: getattr(digest_helpers, name)("text")).sink("out")
"""
    before = digests(tmp_path / "a", flow)
    after = digests(tmp_path / "b", flow, HELPERS.replace("return text\n", "return text * 2\n"))
    assert after.changed(before) == ["map-1"]


def test_irrelevant_code_changes_keep_every_digest(tmp_path: Path) -> None:
    before = digests(tmp_path / "a")
    other = FLOW.replace('    """Words of a text."""\n    # of which there are many\n', "")
    other = "# a comment\n\n" + other
    other = other.replace(
        "def count(word, total, seen)", "def count(word: str, total, seen) -> object"
    )
    other += "\n\ndef another(text):\n    return None\n"
    helpers = HELPERS.replace("return text\n", "return text * 2\n")
    after = digests(tmp_path / "deeper" / "b", other, helpers)
    assert after.changed(before) == []
    assert after.text == before.text


def test_digest_uses_the_values_of_variables_at_load_time(tmp_path: Path) -> None:
    before = digests(tmp_path / "a")
    flow = load_flow(str(tmp_path / "a" / "flow.py"))
    function = flow.vertices[7].function
    assert function is not None
    function.__globals__["CACHE"]["word"] = 1
    assert code_of(flow).text == before.text
    assert before.unseen == ("LOCK (lock) in 'variables'",)


class Endless:
    """Value that refers to itself and has no repr."""

    def __init__(self) -> None:
        self.me = {"again": [self]}
        self.lock = object()

    def __repr__(self) -> str:
        raise ValueError("no look")


def test_endless_and_deeply_nested_values_have_a_stable_digest() -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    everything = [Endless(), deep, [[0] * 5000] * 5000, {frozenset({i}) for i in range(20_000)}]

    def function(x: object) -> object:
        return x, everything

    flow = Flow("endless")
    flow.source("in").map(function).sink("out")
    assert code_of(flow) == code_of(flow)
