"""Each format gives its records, plain and compressed, in any script."""

import bz2
import gzip
import json
from pathlib import Path

import pytest

from driftline.engine.sources import open_source, strict
from tests.engine.sources.files import dump, everything, page, records, write


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2"])
def test_each_format_gives_its_records_plain_and_compressed(tmp_path: Path, ending: str) -> None:
    lines = '{"id": "a", "text": "Привет, мир"}\n\n  \n{"id": 2, "text": "x", "more": [1, [2]]}\n'
    assert records(write(tmp_path / f"x.jsonl{ending}", lines)) == [
        {"id": "a", "text": "Привет, мир"},
        {"id": 2, "text": "x", "more": (1, (2,))},
    ]
    table = 'id,text\n1,"да, ""нет""\nили"\n\n2,b\n'
    assert records(write(tmp_path / f"x.csv{ending}", table)) == [
        {"id": "1", "text": 'да, "нет"\nили'},
        {"id": "2", "text": "b"},
    ]
    assert records(write(tmp_path / f"x.tsv{ending}", 'id\ttext\n1\t"quoted, \n2\tb\n')) == [
        {"id": "1", "text": '"quoted, '},
        {"id": "2", "text": "b"},
    ]
    for name in ("x.txt", "x.log", "x"):
        assert records(write(tmp_path / f"{name}{ending}", "один\r\n \n\n два\nthree")) == [
            {"id": 1, "text": "один"},
            {"id": 2, "text": " два"},
            {"id": 3, "text": "three"},
        ]
    pages = [page(12, "Кошка", "''Кошка'' & <b>мышь</b>"), page(13, "B", "text")]
    for name in ("x.xml", "dump.xml-p1p2"):  # parts of a dump have such names
        assert records(write(tmp_path / f"{name}{ending}", dump(pages))) == [
            {"id": 12, "title": "Кошка", "text": "''Кошка'' & <b>мышь</b>"},
            {"id": 13, "title": "B", "text": "text"},
        ]
    simple = '<pages><page id="7" title="Яма">где <b>она</b></page><page id="07">x</page></pages>'
    assert records(write(tmp_path / f"y.xml{ending}", simple)) == [
        {"id": 7, "title": "Яма", "text": "где она"},
        {"id": "07", "title": "", "text": "x"},
    ]


def test_multistream_files_are_read_to_the_end(tmp_path: Path) -> None:
    parts = [dump([page(i, f"T{i}", "x" * 1000) for i in range(1, 300)]).encode()]
    parts = [parts[0][i : i + 5000] for i in range(0, len(parts[0]), 5000)]
    for ending, compress in ((".bz2", bz2.compress), (".gz", gzip.compress)):
        path = tmp_path / f"x.xml{ending}"
        path.write_bytes(b"".join(map(compress, parts)) + b"\0" * 100)
        assert len(records(path)) == 299


def test_compression_is_seen_without_the_name(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(gzip.compress(b'{"id": 1}\n'))
    assert records(path) == [{"id": 1}]


def test_long_lines_and_lines_across_buffers(tmp_path: Path) -> None:
    rows = [{"id": n, "text": "ё" * n * 997} for n in range(1, 60)]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    assert records(write(tmp_path / "x.jsonl", text)) == rows
    assert records(write(tmp_path / "x.jsonl.bz2", text)) == rows
    table = "id,text\n" + "".join(f"{row['id']},{row['text']}\n" for row in rows)
    assert [len(str(row)) for row in records(write(tmp_path / "x.csv", table))] == [
        len(str({"id": str(row["id"]), "text": row["text"]})) for row in rows
    ]


def test_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    mark = "\ufeff"
    assert records(write(tmp_path / "x.jsonl", mark + '{"id": 1}')) == [{"id": 1}]
    assert records(write(tmp_path / "x.csv", mark + "id\n1\n")) == [{"id": "1"}]
    assert records(write(tmp_path / "x.txt", mark + "a")) == [{"id": 1, "text": "a"}]


def test_redirects_and_other_namespaces_take_no_number(tmp_path: Path) -> None:
    pages = [
        page(1, "Old", "#REDIRECT [[New]]", extra='<redirect title="New"/>'),
        page(2, "New", "text"),
        page(3, "Talk:New", "chat", ns=1),
        page(4, "Last", "end"),
    ]
    assert records(write(tmp_path / "x.xml", dump(pages))) == [
        {"id": 2, "title": "New", "text": "text"},
        {"id": 4, "title": "Last", "text": "end"},
    ]


def test_latest_revision_counts_whatever_the_order(tmp_path: Path) -> None:
    def revision(year: int) -> str:
        return f"<revision><timestamp>{year}-01-01</timestamp><text>of {year}</text></revision>"

    years = (2001, 2019, 2007, 2003)
    one = f"<page><title>T</title><ns>0</ns><id>5</id>{''.join(map(revision, years))}</page>"
    assert records(write(tmp_path / "x.xml", dump([one]))) == [
        {"id": 5, "title": "T", "text": "of 2019"}
    ]


def test_ids_come_from_the_field_asked_for_then_id_then_url_then_the_number(tmp_path: Path) -> None:
    lines = '{"id": 7, "url": "u", "key": "k"}\n{"url": "u", "key": "l"}\n{"key": "m", "body": "b"}'
    path = write(tmp_path / "x.jsonl", lines)
    assert records(path) == [
        {"id": 7, "url": "u", "key": "k"},
        {"id": "u", "url": "u", "key": "l"},
        {"id": 3, "key": "m", "body": "b"},
    ]
    by_key = [record for _, record in strict(open_source(path, id_field="key").read(1))]
    assert by_key[0] == {"id": "k", "url": "u", "key": "k"}
    found = everything(open_source(path, text_field="body"))
    assert found[2] == (3, {"id": 3, "key": "m", "body": "b", "text": "b"})


def test_sections_are_documents_with_titles_and_numbers_of_their_own(tmp_path: Path) -> None:
    text = "Lead ''text''.\n== Empty ==\n{{x}}\n=== ''Пища'' ===\n[[Mouse|Mice]].\n"
    pages = [page(1, "Кот", text), page(2, "Nothing", "{{stub}}"), page(3, "Dog", "Barks.")]
    assert records(write(tmp_path / "x.xml", dump(pages)), sections=True) == [
        {"id": "1#0", "title": "Кот", "text": "Lead text."},
        {"id": "1#2", "title": "Кот: Пища", "text": "Mice."},
        {"id": "3#0", "title": "Dog", "text": "Barks."},
    ]
    lines = '{"id": "p", "text": "a\\n==H==\\nb"}\n{"text": "c"}\n'
    assert records(write(tmp_path / "x.jsonl", lines), sections=True) == [
        {"id": "p#0", "title": "", "text": "a"},
        {"id": "p#1", "title": "H", "text": "b"},
        {"id": "2#0", "title": "", "text": "c"},
    ]


def test_the_progress_of_a_small_file_counts_what_was_used_of_it(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", "".join(f'{{"id": {n}}}\n' for n in range(1000, 3000)))
    source, size = open_source(path), path.stat().st_size
    for number, _ in enumerate(source.read(1), 1):
        progress = source.progress()
        assert progress is not None
        assert number / 2000 - 0.06 <= progress[0] / size <= number / 2000
    assert source.progress() == (size, size)


def test_progress_ends_at_the_size_and_identity_tells_inputs_apart(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl.bz2", "".join(f'{{"id": {n}}}\n' for n in range(50_000)))
    source = open_source(path)
    size = path.stat().st_size
    assert source.progress() == (0, size)
    reading = source.read(1)
    next(reading)
    begun = source.progress()
    assert begun is not None
    assert 0 < begun[0] <= size
    assert len(list(reading)) == 49_999
    assert source.progress() == (size, size)

    (tmp_path / "moved").mkdir()
    moved = tmp_path / "moved" / path.name
    moved.write_bytes(path.read_bytes())
    same = open_source(moved).identity()
    assert same == source.identity()
    assert open_source(path, id_field="k").identity() != same
    assert open_source(path, sections=True).identity() != same
    write(moved, '{"id": 1}')
    assert open_source(moved).identity() == same, "a file may grow"
    plain = write(tmp_path / "x.jsonl", '{"id": 1}')
    assert open_source(plain).identity() == same, "and be compressed"
    assert open_source(write(tmp_path / "y.jsonl", '{"id": 1}')).identity() != same
