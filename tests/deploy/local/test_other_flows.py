"""A run starts from the savepoint of another flow, through the command.

Its outputs equal those of the reference interpreter, started from the same state.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from driftline.connectors.inputs import open_rereadable_inputs
from driftline.connectors.sinks.lines import JsonLines
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.loading import load_flow
from driftline.engine.reference import _Interpreter, _Value
from driftline.engine.sources.record import RecordFormat
from driftline.engine.sources.source import strict
from driftline.engine.state.plain import plain_state
from driftline.engine.wire.codec import round_trip
from tests.deploy.local.command import call, lines

FUNCTIONS = """
from driftline import Flow, ListState, MapState, ValueState

def split(record):
    return record["text"].split()

def count(word, n):
    n.set(n.get(0) + 1)
    return (word, n.get())

def longest(word, best):
    best.set(max(best.get(""), word))
    return (len(word), best.get())

def collect(context, pair, seen, at):
    seen.append(pair)
    at[pair[0]] = pair[1]
    yield "".join(f"{word}{n}" for word, n in seen), sorted(at.items())

"""

OLD = (
    FUNCTIONS
    + """
flow = Flow("shop")
words = flow.source("lines").flat_map(split)
counted = words.key_by(lambda word: word).scan(count, ValueState("n"), name="Zähler/1")
counted.key_by(lambda pair: pair[0][0]).process(
    collect, ListState("seen"), MapState("at"), name="letters").sink("texts")
words.key_by(len).scan(longest, ValueState("best"), name="sizes").sink("best")
"""
)

NEW = (
    FUNCTIONS
    + """
def twice(pair, times):
    times.set(times.get(0) + 1)
    return (pair[0], times.get())

def collect_more(context, pair, at, total, seen):
    total.set(total.get(0) + pair[1])
    for text, items in collect(context, pair, seen, at):
        yield text, items, total.get()

flow = Flow("shop of today")
words = flow.source("lines").filter(lambda record: "skip" not in record["text"]).flat_map(split)
words.key_by(len).scan(twice, ValueState("times"), name="twice").sink("new")
counted = words.key_by(lambda word: word).scan(count, ValueState("n"), name="Zähler/1")
counted.map(lambda pair: (pair[0], 10 * pair[1])).key_by(lambda pair: pair[0][0]).process(
    collect_more, MapState("at"), ValueState("total"), ListState("seen"), name="letters",
).sink("texts")
"""
)

FIRST, ALL = 40, 90
"""Numbers of records of the first run and of the second one."""


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def records(path: Path, count: int) -> Path:
    skip = dict.fromkeys(range(0, count, 9), " skip")
    texts = (f"a{n % 3} bb{n % 5} a{n % 7} ccc{n}{skip.get(n, '')}" for n in range(count))
    return written(path, "".join(json.dumps({"text": text}) + "\n" for text in texts))


def expected(
    old: Path, new: Path, inputs: Sequence[Path], time: int, lost: frozenset[tuple[str, str]]
) -> list[str]:
    """Return the new flow's outputs for records from `time` on, by the reference interpreter.

    The interpreter starts from the state of the old flow before that time. The states in `lost`
    start empty.
    """
    flows: list[Flow] = [load_flow(str(old)), load_flow(str(new))]
    before, after = map(_Interpreter, flows)
    after.undo = before.undo
    names = [str(each) for each in inputs]
    sources = [
        open_rereadable_inputs(flow, names[: len(flow.sources)], RecordFormat(), "-")
        for flow in flows
    ]

    def run(which: int, interpreter: _Interpreter, since: int, until: int) -> list[str]:
        flow, made = flows[which], JsonLines(flows[which])
        roots = sorted(
            ((number, front), payload)
            for front, source in enumerate(sources[which])
            for number, payload in strict(source.read(since))
            if number < until
        )
        return [
            made.format(item)
            for label, payload in roots
            for item in interpreter.follow(
                flow.sources[label[1]], label, _Value(round_trip(payload), "source")
            )
        ]

    run(0, before, 1, time)
    vertices = {vertex.name: vertex for vertex in flows[0].vertices}
    for vertex in flows[1].vertices:
        was = vertices.get(vertex.name)
        kept = {} if was is None else {state.name: i for i, state in enumerate(was.states)}
        for number, key in list(before.states):
            if was is not None and number == was.number and vertex.is_keyed:
                after.states[vertex.number, key] = [
                    before.states[number, key][kept[state.name]]
                    if state.name in kept and (vertex.name, state.name) not in lost
                    else plain_state(state, before.undo)
                    for state in vertex.states
                ]
    return sorted(run(1, after, time, 1 << 62))


def run(flow: Path, source: Path, to: Path, *more: str | Path) -> subprocess.CompletedProcess[str]:
    return call("run", flow, "--input", source, "--output", to, *more)


def finished(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stderr


def refused(done: subprocess.CompletedProcess[str], *expected_texts: str) -> None:
    assert done.returncode == 1, done.stderr
    for text in expected_texts:
        assert text in done.stderr
    assert "Traceback" not in done.stderr


def saved(flow: Path, source: Path, folder: Path) -> Path:
    """Return the savepoint of a run over a file."""
    finished(run(flow, source, folder / "first", "--nodes", "2"))
    to, state = folder / "saved", folder / "first" / ".driftline" / "state"
    finished(call("savepoint", flow, "--state", state, "--output", to))
    return to


def test_operators_may_be_added_removed_and_changed_from_a_savepoint(tmp_path: Path) -> None:
    old, new = written(tmp_path / "old.py", OLD), written(tmp_path / "new.py", NEW)
    made = saved(old, records(tmp_path / "in.jsonl", FIRST), tmp_path)
    start = made.rename(tmp_path / "moved")
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in start.iterdir()}
    source = records(tmp_path / "in.jsonl", ALL)
    command = new, source, tmp_path / "out", "--from-savepoint", start, "--nodes", "3"
    refused(
        run(*command),
        "operator 'sizes' is not in the flow, and its state would be lost: --drop-state sizes",
    )
    assert not list((tmp_path / "out").glob("*.jsonl"))
    refused(
        run(*command, "--drop-state", "sizes", "--drop-state", "size"),
        "--drop-state size: the savepoint has no such state",
    )
    expected_texts = finished(run(*command, "--drop-state", "sizes"))
    assert "operator 'twice' starts empty" in expected_texts
    assert "state 'total' of operator 'letters' starts empty" in expected_texts
    assert "operator 'sizes' is dropped" in expected_texts
    assert "'seen'" not in expected_texts
    right = expected(old, new, [source], FIRST + 1, frozenset())
    assert sorted(lines(tmp_path / "out")) == right
    assert len({line[-20:] for line in right}) > 20, "there are outputs to compare"
    finished(run(*command))
    assert sorted(lines(tmp_path / "out")) == right, "the same command resumes without the flag"
    after = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in start.iterdir()}
    assert after == before, "a run does not write to its savepoint, so other runs may use it, too"
    store = tmp_path / "out" / ".driftline" / "state" / "node-1"
    shutil.rmtree(store)
    refused(run(*command), str(store))


TWO_SOURCES = (
    FUNCTIONS
    + """
flow = Flow("two")
more = flow.source("more")
words = flow.source("lines").union(more).flat_map(split)
words.key_by(lambda word: word).scan(count, ValueState("n"), name="count").sink("counts")
"""
)

ONE_SOURCE = TWO_SOURCES.replace('more = flow.source("more")\n', "").replace(".union(more)", "")


def test_file_of_a_new_source_is_rejected_after_a_savepoint(tmp_path: Path) -> None:
    old, new = written(tmp_path / "old.py", ONE_SOURCE), written(tmp_path / "new.py", TWO_SOURCES)
    start = saved(old, records(tmp_path / "in.jsonl", FIRST), tmp_path)
    source = records(tmp_path / "in.jsonl", ALL)
    file, out = records(tmp_path / "more.jsonl", 200), tmp_path / "out"
    refused(
        run(
            new, Path(f"lines={source}"), out, "--input", f"more={file}", "--from-savepoint", start
        ),
        "the source is not in the savepoint",
        "would be left out",
        "--rename-state OLD=more",
    )
