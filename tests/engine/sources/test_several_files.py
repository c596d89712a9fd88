"""Several files as one source: numbers, replays, bad records, parts for Spark."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from driftline.engine.sources import BadRecord, Source
from driftline.engine.sources.files.splits import splits_of, starts
from driftline.engine.sources.inputs import open_files
from driftline.engine.sources.record import Shape
from tests.engine.sources.files import dump, everything, page, write

FILES: dict[str, str] = {
    "a.jsonl": '{"text": "one"}\n\n{"text": "two"}\n',
    "b.txt.gz": "three\nfour\nfive\n",
    "c.csv": "text,n\n",
    "d.csv.bz2": 'text,n\n"six\nseven",1\n',
    "e.xml": dump([page(70, "A", "intro\n== H ==\nbody"), page(71, "B", "eight")]),
}


def several(folder: Path, files: dict[str, str] = FILES, *, sections: bool = False) -> Source:
    paths = [str(write(folder / name, text)) for name, text in files.items()]
    return open_files(paths, Shape(sections=sections), "a test")


def shown(records: Sequence[tuple[int, object] | BadRecord]) -> list[tuple[int, object, object]]:
    """Number, id, text."""
    found = []
    for record in records:
        assert not isinstance(record, BadRecord)
        time, value = record
        assert isinstance(value, dict)
        found.append((time, value["id"], value["text"]))
    return found


def test_the_numbers_go_on_from_file_to_file(tmp_path: Path) -> None:
    source = several(tmp_path)
    assert shown(everything(source)) == [
        (1, 1, "one"), (2, 2, "two"), (3, 3, "three"), (4, 4, "four"), (5, 5, "five"),
        (6, 6, "six\nseven"), (7, 70, "intro\n== H ==\nbody"), (8, 71, "eight"),
    ]  # fmt: skip


@pytest.mark.parametrize("start", range(-1, 11))
@pytest.mark.parametrize("fresh", [True, False])
def test_it_is_read_again_from_any_record_on(start: int, fresh: bool, tmp_path: Path) -> None:
    source = several(tmp_path)
    if not fresh:
        everything(source)
    whole = everything(several(tmp_path))
    assert everything(source, start) == [r for r in whole if _time(r) >= start]
    assert everything(source) == whole


def test_a_reading_that_was_left_in_the_middle_spoils_nothing(tmp_path: Path) -> None:
    source, whole = several(tmp_path), everything(several(tmp_path))
    for stop in range(len(whole)):
        records = source.read(1)
        assert [next(records) for _ in range(stop)] == whole[:stop]
        assert everything(source, stop + 1) == whole[stop:]


def test_sections_are_counted_over_all_files(tmp_path: Path) -> None:
    wiki = {
        "1.jsonl": json.dumps({"text": "a\n== H ==\nb\n== I ==\nc"}) + "\n",
        "2.jsonl": json.dumps({"text": "d\n== H ==\ne"}) + "\n" + json.dumps({"text": "f"}),
    }
    assert shown(everything(several(tmp_path, wiki, sections=True))) == [
        (1, "1#0", "a"), (2, "1#1", "b"), (3, "1#2", "c"),
        (4, "2#0", "d"), (5, "2#1", "e"), (6, "3#0", "f"),
    ]  # fmt: skip


def test_a_bad_record_is_told_with_its_file_and_both_its_numbers(tmp_path: Path) -> None:
    files = {"a.jsonl": "{}\n{\n{}\n", "b.jsonl": "{}\n[]\n{}\n"}
    one, other = [r for r in everything(several(tmp_path, files)) if isinstance(r, BadRecord)]
    assert (one.time, one.file) == (2, "a.jsonl")
    assert "of this file" not in one.reason
    assert (other.time, other.file) == (5, "b.jsonl")
    assert other.reason.endswith("found a list (it is record 2 of this file)")
    assert other.raw == "[]"


def test_nothing_is_read_behind_a_file_that_breaks_off(tmp_path: Path) -> None:
    source = several(tmp_path, {"a.txt.gz": "one\n" * 5000, "b.txt": "two\n"})
    path = tmp_path / "a.txt.gz"
    path.write_bytes(path.read_bytes()[:-9])
    again = open_files([str(path), str(tmp_path / "b.txt")], Shape(), "a test")
    for found in (everything(source), everything(again)):
        last = found[-1]
        assert isinstance(last, BadRecord)
        assert last.ends
        assert (last.time, last.file) == (len(found), "a.txt.gz")


def test_its_identity_is_that_of_the_first_file(tmp_path: Path) -> None:
    """More files may come later; what was used of all of them is checked by a checksum."""

    def identity(*names: str) -> str:
        return open_files([str(tmp_path / name) for name in names], Shape(), "a test").identity()

    for name in "abc":
        write(tmp_path / f"{name}.jsonl", f'{{"text": "{name}"}}\n')
    same = identity("a.jsonl")
    assert same == identity("a.jsonl", "b.jsonl") == identity("a.jsonl", "b.jsonl", "c.jsonl")
    assert same != identity("b.jsonl", "a.jsonl")


def test_progress_grows_to_the_bytes_of_all_files(tmp_path: Path) -> None:
    source = several(tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    done = []
    for _ in source.read(1):
        progress = source.progress()
        assert progress is not None
        done.append(progress)
    assert {whole for _, whole in done} == {size}
    assert [read for read, _ in done] == sorted(read for read, _ in done)
    assert source.progress() == (size, size)
    assert source.name == "a.jsonl and 4 more"


@pytest.mark.parametrize("sections", [False, True])
def test_in_parts_they_give_the_same(
    sections: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driftline.engine.sources.files.splits.SPLIT_BYTES_MIN", 64)
    large = {**FILES, "f.txt": "".join(f"line {n}\n" for n in range(500))}
    source = several(tmp_path, large, sections=sections)
    parts = splits_of(source, 8)
    assert len(parts) > len(large), "a large file is cut, too"
    firsts = starts(part.count() for part in parts)
    read = [r for part, first in zip(parts, firsts, strict=True) for r in part.read(*first)]
    assert read == everything(source)


def test_a_broken_file_ends_the_parts_as_it_ends_the_source(tmp_path: Path) -> None:
    several(tmp_path, {"a.txt": "zero\n", "b.txt.gz": "one\n" * 5000, "c.txt": "two\n"})
    path = tmp_path / "b.txt.gz"
    path.write_bytes(path.read_bytes()[:-9])
    source = open_files([str(tmp_path)], Shape(), "a test")
    parts = splits_of(source, 4)
    firsts = starts(part.count() for part in parts)
    assert len(firsts) == 2
    read = [r for part, first in zip(parts, firsts, strict=False) for r in part.read(*first)]
    assert read == everything(source)


def _time(record: tuple[int, object] | BadRecord) -> int:
    return record.time if isinstance(record, BadRecord) else record[0]
