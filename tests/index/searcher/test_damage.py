"""Damaged or missing files are reported and never cause a wrong answer."""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from driftline.engine.errors import SnapshotDamaged, Unavailable
from driftline.engine.wire.codec import pack
from driftline.index.documents.schema import Schema
from driftline.index.postings.sections import DamagedSegment, Sections
from driftline.index.postings.segment import Segment
from driftline.index.searcher.searcher import Searcher
from driftline.serve.errors import ApiError
from tests.index.search.model import Model, ModelDocument, ModelWrite
from tests.index.searcher.world import COLLECTION, SCHEMA, check, items_of

QUERIES = ["title:a", 'text:"b c"', "tags:x", "number:[0 TO 3]"]


def model_of(number: int) -> Model:
    model = Model([field.weight for field in COLLECTION.text_fields])
    for time in range(1, number + 1):
        words = (("a", "b", "c", f"w{time}")[: time % 5], ("b", "c", "a") * (time % 50))
        document = ModelDocument(words, ("x", f"y{time}"), float(time), time)
        model.writes.append(ModelWrite(time, "pqrs"[time % 4], document))
    return model


MODEL = model_of(30)
NOW = len(MODEL.writes) + 1


def save_checkpoints(directory: Path, saves: int = 3) -> list[bytes]:
    """Save checkpoints with some segments, and return the parts of the last one."""
    searcher, items = Searcher(SCHEMA, directory), items_of(MODEL.writes)
    parts: list[bytes] = []
    for number in range(1, saves + 1):
        until = NOW * number // saves
        new = [item for item in items if searcher.time <= item.label[0] < until]
        searcher.apply(until, new)
        searcher.freeze()
        parts = list(searcher.save())
        searcher.mark_saved()
    return parts


def load_searcher(directory: Path, parts: list[bytes]) -> Searcher:
    searcher = Searcher(SCHEMA, directory)
    searcher.load(parts)
    return searcher


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.segment"))


def flip_bit(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


def damage_postings(path: Path) -> None:
    """Flip a bit that the search first reads for a word of the second text field."""
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(flip_bit(good, at))
        with suppress(DamagedSegment):
            postings = Segment(path).postings(1, "b")
            assert postings is not None
            try:
                assert postings.ordinals is not None
            except DamagedSegment:
                return


def test_flipped_bit_in_a_segment_never_causes_a_wrong_answer(tmp_path: Path) -> None:
    parts = save_checkpoints(tmp_path)
    path = segments(tmp_path)[1]
    good = path.read_bytes()
    refused: list[str] = []
    unused: list[str] = []
    for at in range(0, len(good), 37):
        path.write_bytes(flip_bit(good, at))
        try:
            searcher = load_searcher(tmp_path, parts)
            check([searcher], MODEL, QUERIES, NOW)
        except SnapshotDamaged as error:
            unused.append(str(error))
        except ApiError as error:
            refused.append(f"{error.code}: {searcher.damage}")
        path.write_bytes(good)
    assert len(unused) > 10
    assert all(str(path) in each and "rebuilt from the journal" in each for each in unused)
    assert len(refused) > 2
    assert all(each.startswith(f"unavailable: {path}") for each in refused)


def test_damage_is_logged_once_and_the_segment_is_not_reloaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = save_checkpoints(tmp_path)
    path = segments(tmp_path)[0]
    damage_postings(path)
    searcher = load_searcher(tmp_path, parts)
    for _ in range(2):
        with pytest.raises(ApiError, match="section 'postings 1' is damaged") as refused:
            searcher.ask({"what": "count", "collection": "c", "q": "text:b"})
        assert refused.value.code == "unavailable"
    assert len(caplog.records) == 1
    assert "section 'postings 1' is damaged" in searcher.damage
    # Other queries are answered. No merge starts, as the view will be rebuilt.
    assert searcher.ask({"what": "count", "collection": "c", "q": "tags:x"})["total"] == 4
    assert searcher.next_job() is None
    searcher.freeze()
    with pytest.raises(Unavailable, match=r"no checkpoint is saved: .* is damaged"):
        next(searcher.save())
    with pytest.raises(SnapshotDamaged, match=r"segment cannot be read: No such file"):
        load_searcher(tmp_path, parts)


def test_damage_after_a_page_check_is_detected_by_a_failing_query(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As if the page had been evicted and read from a damaged disk again."""
    parts = save_checkpoints(tmp_path)
    path = segments(tmp_path)[-1]
    searcher = load_searcher(tmp_path, parts)
    question = {"what": "search", "collection": "c", "q": "*", "limit": 30}
    found = searcher.ask(question)
    stored = Sections(path)["stored"]
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(stored.read(0, stored.size)))
        file.write(bytes(20))
    with pytest.raises(ApiError, match="section 'stored' is damaged") as refused:
        searcher.ask(question)
    assert refused.value.code == "unavailable"
    assert "section 'stored' is damaged" in searcher.damage
    assert not path.exists()
    assert found["total"] == 4


def test_damage_found_by_a_forked_merge_reaches_the_searcher(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = save_checkpoints(tmp_path)
    path = segments(tmp_path)[1]
    damage_postings(path)
    searcher = load_searcher(tmp_path, parts)
    work = searcher.next_job()
    assert work is not None
    with pytest.raises(DamagedSegment):
        work.do()  # in a forked process: the searcher does not see the error
    with caplog.at_level(logging.ERROR):
        assert searcher.next_job() is None
    assert str(path) in searcher.damage
    assert str(path) in caplog.text
    with pytest.raises(SnapshotDamaged):
        load_searcher(tmp_path, parts)


def test_failed_merge_is_retried_after_the_next_checkpoint(tmp_path: Path) -> None:
    searcher = load_searcher(tmp_path, save_checkpoints(tmp_path))
    assert searcher.next_job() is not None
    assert searcher.next_job() is None
    searcher.freeze()
    list(searcher.save())
    searcher.mark_saved()
    work = searcher.next_job()
    assert work is not None
    work.do()
    work.on_success()
    assert searcher.figures()["segments"] == 1
    check([searcher], MODEL, QUERIES, NOW)


def test_missing_or_foreign_segment_is_rejected(tmp_path: Path) -> None:
    parts = save_checkpoints(tmp_path)
    first, second, _ = segments(tmp_path)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    with pytest.raises(SnapshotDamaged, match="is not the file that the checkpoint names"):
        load_searcher(tmp_path, parts)
    first.write_bytes(content[:-1])
    with pytest.raises(SnapshotDamaged, match="rebuilt"):
        load_searcher(tmp_path, parts)
    first.unlink()
    with pytest.raises(SnapshotDamaged, match=f"{first} cannot be read: No such file"):
        load_searcher(tmp_path, parts)


def test_checkpoint_of_another_index_is_rejected(tmp_path: Path) -> None:
    parts = save_checkpoints(tmp_path)
    other = Schema({"c": replace(COLLECTION, others="refused")})
    for searcher in (
        Searcher(other, tmp_path),
        Searcher(Schema({"d": COLLECTION}), tmp_path),
        Searcher(SCHEMA, tmp_path, 1, 2),
        Searcher(SCHEMA, tmp_path, 0, 2),
    ):
        with pytest.raises(SnapshotDamaged, match="of another schema, shard or version"):
            searcher.load(parts)
    assert len(segments(tmp_path)) == 3  # searchers of another index must not remove files
    check([load_searcher(tmp_path, parts)], MODEL, QUERIES, NOW)


def test_checkpoint_with_other_parts_is_rejected(tmp_path: Path) -> None:
    parts = save_checkpoints(tmp_path)
    for number in range(len(parts)):
        for wrong in ([], [pack(None)], [pack((1, "2"))], [b"\xc1"], [pack(b"12345678")]):
            if wrong != [parts[number]]:
                with pytest.raises(SnapshotDamaged):
                    load_searcher(tmp_path, [*parts[:number], *wrong, *parts[number + 1 :]])


def test_rebuilding_view_keeps_old_files_until_it_is_saved(tmp_path: Path) -> None:
    parts = save_checkpoints(tmp_path)
    before = segments(tmp_path)
    searcher = Searcher(SCHEMA, tmp_path)
    searcher.apply(NOW, items_of(MODEL.writes))
    searcher.freeze()
    new_parts = list(searcher.save())
    check([load_searcher(copy_directory(tmp_path), parts)], MODEL, QUERIES, NOW)
    searcher.mark_saved()
    assert len(segments(tmp_path)) == 1
    assert not set(segments(tmp_path)) & set(before)
    check([load_searcher(tmp_path, new_parts)], MODEL, QUERIES, NOW)


def copy_directory(directory: Path) -> Path:
    """Copy the directory for another searcher."""
    return Path(shutil.copytree(directory, directory.with_name("copy")))


def test_failed_segment_write_names_the_file_and_is_retried(tmp_path: Path) -> None:
    searcher = Searcher(SCHEMA, tmp_path / "index")
    items = items_of(MODEL.writes)
    searcher.apply(NOW, items)
    searcher.freeze()
    tmp_path.joinpath("index").rmdir()  # no file can be written there now
    with pytest.raises(Unavailable, match=r"00000001\.segment.*: No such file or directory"):
        list(searcher.save())
    check([searcher], MODEL, QUERIES, NOW)
    tmp_path.joinpath("index").mkdir()
    searcher.freeze()
    parts = list(searcher.save())
    searcher.mark_saved()
    check([searcher], MODEL, QUERIES, NOW)
    check([load_searcher(tmp_path / "index", parts)], MODEL, QUERIES, NOW)
