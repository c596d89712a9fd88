"""Outputs of several nodes are compared with the reference interpreter, line by line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftline.deploy.run.comparing import difference
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.flow import Flow
from driftline.engine.sources import open_source


def flow() -> Flow:
    made = Flow("two")
    numbers = made.source("numbers").map(lambda record: record["n"])
    numbers.sink("all")
    numbers.filter(lambda n: n % 2, name="odd").sink("all-1")
    return made


def line(number: int, edge: int) -> str:
    return json.dumps({"t": [number + 1, 0, edge], "value": number})


def outputs(folder: Path, every: int = 10) -> dict[str, list[str]]:
    """What two nodes have delivered, by file."""
    return {
        "all-0.jsonl": [line(n, 0) for n in range(0, every, 2)],
        "all-1.jsonl": [line(n, 0) for n in range(1, every, 2)],
        "all-1-0.jsonl": [line(n, 1) for n in range(1, every, 2)],
        "all-1-1.jsonl": [],
    }


@pytest.mark.parametrize(
    ("file", "place", "put", "told"),
    [
        ("all-0.jsonl", slice(0, 0), [], ""),
        ("all-0.jsonl", slice(1, 2), [], "sink 'all' has {\"t\": [4, 0, 0], \"value\": 3}"),
        ("all-1.jsonl", slice(4, 5), [], "sink 'all' has nothing\n  where the reference "
         "interpreter gives {\"t\": [10, 0, 0], \"value\": 9}"),
        ("all-1-0.jsonl", slice(0, 1), [line(1, 1).replace("1}", "7}")],
         "sink 'all-1' has {\"t\": [2, 0, 1], \"value\": 7}"),
        ("all-1-1.jsonl", slice(0, 0), [line(11, 1)],
         "sink 'all-1' has {\"t\": [12, 0, 1], \"value\": 11}\n  where the reference interpreter "
         "gives nothing"),
    ],
)  # fmt: skip
def test_the_first_difference_is_told(
    file: str, place: slice, put: list[str], told: str, tmp_path: Path
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f'{{"n": {n}}}\n' for n in range(12)))
    found = outputs(tmp_path)
    found[file][place] = put
    output = tmp_path / "out"
    output.mkdir()
    for name, lines in found.items():
        (output / name).write_text("".join(f"{each}\n" for each in lines))
    said, count = difference(flow(), [open_source(source)], output, 11, dead_letters=False)
    assert said.startswith(told)
    assert bool(said) == bool(told)
    if not told:
        assert count == 15


@pytest.mark.parametrize("damaged", ["{", "7", "{}", '{"t": ["a"]}', "[" * 200_000])
def test_a_file_that_is_no_output_is_told(damaged: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"n": 0}\n')
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "all-0.jsonl").write_text(f"{line(0, 0)}\n{damaged}\n")
    (tmp_path / "out" / "all-1.jsonl").write_text(f"{line(1, 0)}\n")
    source = open_source(str(tmp_path / "in.jsonl"))
    with pytest.raises(StateMismatch, match="is no line of an output"):
        difference(flow(), [source], tmp_path / "out", 100, dead_letters=False)
