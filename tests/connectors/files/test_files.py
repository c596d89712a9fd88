"""Each format yields its records, plain and compressed, in any script."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from driftline.connectors.files import ZipfSource, buffers, open_source
from driftline.connectors.files.splits import first_rows_and_times, splits_of
from driftline.connectors.inputs import open_files
from driftline.engine.sources import BadRecord, ListSource, Repeated, Source, strict
from driftline.engine.sources.record import RecordFormat
from tests.connectors.files.samples import COMPRESS, dump, everything, page, records, write


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_each_format_yields_its_records_plain_and_compressed(tmp_path: Path, ending: str) -> None:
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


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("encoding", ["utf-16", "UTF-16LE", "utf-16-be", "utf-32", "koi8_r"])
def test_file_in_another_encoding_yields_the_same_records(
    tmp_path: Path, encoding: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffers, "BUFFER_BYTES", 1001)  # buffers may end within a character
    words = ["да", "нет, или"] * 150
    for name, text in (
        ("x.jsonl", "".join(f'{{"word": "{word}"}}\n' for word in words)),
        ("x.csv", "word;n\r\n" + "".join(f'"{word}";\r\n' for word in words)),
        ("x.tsv", "word\n" + "\n".join(words)),
        ("x.txt", "\n".join(words)),
    ):
        path = write(tmp_path / f"{name}{ending}", text.encode(encoding))
        found = everything(open_source(path, encoding=encoding, delimiter=";"))
        usual = write(tmp_path / f"{name}.usual", text).rename(tmp_path / name)
        assert found == everything(open_source(usual, delimiter=";"))
        assert len(found) == len(words)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_byte_order_mark_selects_the_encoding(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path / "x.csv", "id,text\n1,да\n".encode(encoding))
    assert records(path) == [{"id": "1", "text": "да"}]
    path = write(tmp_path / "x.xml", f"<pages><page id='1'>{'да'}</page></pages>".encode("utf-16"))
    assert records(path) == [{"id": 1, "title": "", "text": "да"}], "the parser handles it"


@pytest.mark.parametrize(
    ("name", "data", "warning"),
    [
        ("x.txt", "да, нет\n".encode("utf-16-le"), "--encoding utf-16-le (in Python encoding="),
        ("x.jsonl", '{"a": 1}\n'.encode("utf-16-be"), "--encoding utf-16-be (in Python encoding="),
        ("x.csv", b"id;text\n1;a, b\n", "contains ';'; if that separates columns, give --delimit"),
        ("x.csv.gz", b"id\ttext\n", r"contains '\t'; if that separates columns, give --delimiter"),
        ("x.csv", b"id,a;b\n", ""),
        ("x.csv", b"id\n1;2\n", ""),
        ("x.txt", b"a;b\n", ""),
        ("x.txt", "да\n".encode("utf-16"), ""),
        ("x.xml", "<pages></pages>".encode("utf-16"), ""),
    ],
)
def test_suspicious_encoding_or_delimiter_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, data: bytes, warning: str
) -> None:
    path = write(tmp_path / name, data)
    source = open_source(path)
    assert everything(source) == everything(source)
    assert [warning in each for each in caplog.messages] == [True] * bool(warning)
    assert all(each.startswith(f"{path}: ") for each in caplog.messages)


def test_multistream_files_are_read_to_the_end(tmp_path: Path) -> None:
    parts = [dump([page(i, f"T{i}", "x" * 1000) for i in range(1, 300)]).encode()]
    parts = [parts[0][i : i + 5000] for i in range(0, len(parts[0]), 5000)]
    for ending, compress in COMPRESS.items():
        path = tmp_path / f"x.xml{ending}"
        path.write_bytes(b"".join(map(compress, parts)) + b"\0" * 100)
        assert len(records(path)) == 299


def test_long_lines_and_lines_across_buffers(tmp_path: Path) -> None:
    rows = [{"id": n, "text": "ё" * n * 997} for n in range(1, 60)]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    for name in ("x.jsonl", "x.jsonl.bz2", "x.jsonl.xz", "x.jsonl.zst"):
        assert records(write(tmp_path / name, text)) == rows


def test_identity_differs_between_inputs(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl.bz2", '{"id": 1}')
    same = open_source(path).identity()
    assert open_source(path, id_field="k").identity() != same
    assert open_source(path, sections=True).identity() != same
    assert open_source(path, encoding="cp1252").identity() != same
    assert open_source(path, delimiter=";").identity() != same
    assert open_source(path, encoding="U8", delimiter=",").identity() == same
    plain = write(tmp_path / "x.jsonl", '{"id": 1}\n{"id": 2}')
    assert open_source(plain).identity() == same, "a file may grow, or be compressed"
    other = write(tmp_path / "y.jsonl", '{"id": 1}')
    assert open_source(other).identity() != same
    assert open_files([str(plain), str(other)], RecordFormat(), "a test").identity() == same


def test_source_can_be_reread_from_any_record(tmp_path: Path) -> None:
    used = several(tmp_path)
    whole = everything(used)
    for start in range(-1, 11):
        for source in (used, several(tmp_path)):
            assert everything(source, start) == [r for r in whole if _time(r) >= start]
            assert everything(source) == whole


def test_redirects_and_other_namespaces_are_skipped_without_a_number(tmp_path: Path) -> None:
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


def test_latest_revision_is_used_in_any_order(tmp_path: Path) -> None:
    def revision(year: int) -> str:
        return f"<revision><timestamp>{year}-01-01</timestamp><text>of {year}</text></revision>"

    years = (2001, 2019, 2007, 2003)
    one = f"<page><title>T</title><ns>0</ns><id>5</id>{''.join(map(revision, years))}</page>"
    assert records(write(tmp_path / "x.xml", dump([one]))) == [
        {"id": 5, "title": "T", "text": "of 2019"}
    ]


def test_id_is_the_chosen_field_or_id_or_url_or_the_number(tmp_path: Path) -> None:
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


def test_sections_are_documents_with_their_own_titles_and_numbers(tmp_path: Path) -> None:
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


JSON = '{"id": 1}\n{"id": \n\n{"id": "три"}\n[]\n{"id": 5, "text": "a\\n== b ==\\nc"}\n'
CSV = "id,text\n1,a\n2\n\n3,би\n4,d\n"
XML = dump(
    [
        page(1, "A", "a\n== B ==\nb\n== C ==\n{{c}}\n== D ==\nd"),
        page(2, "R", "", extra="<redirect/>"),
        "<page><id>3</id><ns>0</ns></page>",
        page(4, "B", "b"),
    ]
)
FILES = {
    "x.jsonl": JSON,
    "x.jsonl.gz": JSON,
    "x.csv": CSV,
    "x.tsv.bz2": CSV.replace(",", "\t"),
    "x.txt": "a\n\n биты\nc\nd\n",
    "x.xml": XML,
    "x.xml.bz2": XML,
    "cut.xml": XML[: -len("</page></mediawiki>")],
    "pages.xml": '<pages><page id="1">a</page><page>b</page><page id="3">c</page></pages>',
}


def check_tails(source: Source) -> int:
    """Compare each tail of a source with the whole; return the number of records."""
    whole = everything(source)
    times = [item.time if isinstance(item, BadRecord) else item[0] for item in whole]
    assert times == sorted(set(times))
    for start in range((times or [1])[-1] + 2):
        tail = [item for time, item in zip(times, whole, strict=True) if time >= start]
        assert everything(source, start) == tail
    return len(whole)


@pytest.mark.parametrize("sections", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_tail_of_a_file(tmp_path: Path, name: str, sections: bool) -> None:
    source = open_source(write(tmp_path / name, FILES[name]), sections=sections)
    assert check_tails(source) >= 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: ListSource([{"id": 1}, BadRecord(6, "m", "why", ""), {"id": "b"}], first=5),
        lambda: ZipfSource(7, words_per_document=5),
        lambda: Repeated(ZipfSource(3, words_per_document=2), 11),
        lambda: Repeated(ListSource([{"id": "a"}, BadRecord(2, "m", "why", ""), "c"]), 8),
    ],
)
def test_tail_of_the_other_sources(make: Callable[[], Source]) -> None:
    source = make()
    for start in (9, 3, 6):  # a source that was never read from its beginning yields the same
        assert everything(make(), start) == everything(source, start)
    assert check_tails(source) >= 3


SEVERAL: dict[str, str] = {
    "a.jsonl": '{"text": "one"}\n\n{"text": "two"}\n',
    "b.txt.gz": "three\nfour\nfive\n",
    "c.csv": "text,n\n",
    "d.csv.bz2": 'text,n\n"six\nseven",1\n',
    "e.xml": dump([page(70, "A", "intro\n== H ==\nbody"), page(71, "B", "eight")]),
}


def several(folder: Path, files: dict[str, str] = SEVERAL, *, sections: bool = False) -> Source:
    paths = [str(write(folder / name, text)) for name, text in files.items()]
    return open_files(paths, RecordFormat(sections=sections), "a test")


def summaries(
    records: Sequence[tuple[int, object] | BadRecord],
) -> list[tuple[int, object, object]]:
    """Return number, id and text of each record."""
    found = []
    for record in records:
        assert not isinstance(record, BadRecord)
        time, value = record
        assert isinstance(value, dict)
        found.append((time, value["id"], value["text"]))
    return found


def test_record_numbers_continue_across_files(tmp_path: Path) -> None:
    source = several(tmp_path)
    assert summaries(everything(source)) == [
        (1, 1, "one"), (2, 2, "two"), (3, 3, "three"), (4, 4, "four"), (5, 5, "five"),
        (6, 6, "six\nseven"), (7, 70, "intro\n== H ==\nbody"), (8, 71, "eight"),
    ]  # fmt: skip


def test_bad_record_has_its_file_and_both_numbers(tmp_path: Path) -> None:
    files = {"a.jsonl": "{}\n{\n{}\n", "b.jsonl": "{}\n[]\n{}\n"}
    one, other = [r for r in everything(several(tmp_path, files)) if isinstance(r, BadRecord)]
    assert (one.time, one.file) == (2, "a.jsonl")
    assert "of this file" not in one.reason
    assert (other.time, other.file) == (5, "b.jsonl")
    assert other.reason.endswith("found a value of type list (it is record 2 of this file)")
    assert other.raw == "[]"


def test_reading_stops_at_a_truncated_file(tmp_path: Path) -> None:
    source = several(tmp_path, {"a.txt.gz": "one\n" * 5000, "b.txt": "two\n"})
    path = tmp_path / "a.txt.gz"
    path.write_bytes(path.read_bytes()[:-9])
    again = open_files([str(path), str(tmp_path / "b.txt")], RecordFormat(), "a test")
    for found in (everything(source), everything(again)):
        last = found[-1]
        assert isinstance(last, BadRecord)
        assert last.ends_input
        assert (last.time, last.file) == (len(found), "a.txt.gz")


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
def test_splits_of_several_files_give_the_same_records(
    sections: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driftline.connectors.files.splits.SPLIT_BYTES_MIN", 64)
    large = {**SEVERAL, "f.txt": "".join(f"line {n}\n" for n in range(500))}
    source = several(tmp_path, large, sections=sections)
    parts = splits_of(source, 8)
    assert len(parts) > len(large), "a large file is split, too"
    firsts = first_rows_and_times(part.count() for part in parts)
    read = [r for part, first in zip(parts, firsts, strict=True) for r in part.read(*first)]
    assert read == everything(source)


def test_truncated_file_ends_the_splits_like_the_source(tmp_path: Path) -> None:
    several(tmp_path, {"a.txt": "zero\n", "b.txt.gz": "one\n" * 5000, "c.txt": "two\n"})
    path = tmp_path / "b.txt.gz"
    path.write_bytes(path.read_bytes()[:-9])
    source = open_files([str(tmp_path)], RecordFormat(), "a test")
    parts = splits_of(source, 4)
    firsts = first_rows_and_times(part.count() for part in parts)
    assert len(firsts) == 2
    read = [r for part, first in zip(parts, firsts, strict=False) for r in part.read(*first)]
    assert read == everything(source)


def _time(record: tuple[int, object] | BadRecord) -> int:
    return record.time if isinstance(record, BadRecord) else record[0]
