"""Splits of a source, read separately, yield the records and times of the source."""

import bz2
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.connectors.files import open_source
from driftline.connectors.files import splits as splits_module
from driftline.connectors.files.splits import first_rows_and_times, splits_of
from driftline.engine.sources import Source

PAGE = (
    "<page><title>T {n}</title><ns>{ns}</ns><id>{id}</id>"
    "<revision><text>lead {n}\n== Split ==\nmore\n== Empty ==\n</text></revision></page>\n"
)
HEAD = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/"><siteinfo/>\n'


def read_all_splits(source: Source, count: int) -> tuple[list[object], int]:
    """Read all splits after a round trip through pickle; return records and number of splits."""
    splits = pickle.loads(pickle.dumps(splits_of(source, count)))
    firsts = first_rows_and_times(split.count() for split in splits)
    read = [r for split, first in zip(splits, firsts, strict=False) for r in split.read(*first)]
    return read, len(splits)


@pytest.fixture(autouse=True)
def _small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits_module, "SPLIT_BYTES_MIN", 16)


def pages(numbers: range, bad: int = -1) -> str:
    return "".join(
        PAGE.format(n=n, ns=4 if n % 5 == 0 else 0, id="none" if n == bad else n) for n in numbers
    )


@given(
    st.lists(
        st.sampled_from(['{"text": "a"}', '{"text": "мир"}', "", "  ", "broken", "\ufeff{}", "[]"]),
        max_size=30,
    ),
    st.integers(1, 9),
    st.booleans(),
)
def test_splits_of_json_lines_cover_the_file(
    tmp_path_factory: pytest.TempPathFactory, found: list[str], count: int, ends: bool
) -> None:
    path = tmp_path_factory.mktemp("lines") / "records.jsonl"
    path.write_text("\n".join(found) + "\n" * ends)
    assert read_all_splits(open_source(path), count)[0] == list(open_source(path).read(1))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_splits_of_a_file_in_another_encoding_cover_the_file(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "records.txt"
    path.write_bytes("\n".join("abഊcdefg" * 8).encode(encoding))  # its third letter is U+0D0A
    source = open_source(path, encoding=encoding)
    read, _ = read_all_splits(source, 4)
    assert read == list(source.read(1))
    assert len(read) == 64


@pytest.mark.parametrize("sections", [False, True])
@pytest.mark.parametrize("bad", [-1, 17])
def test_splits_of_a_dump_cover_the_dump(tmp_path: Path, sections: bool, bad: int) -> None:
    path = tmp_path / "dump.xml"
    path.write_text(HEAD + pages(range(1, 41), bad) + "</mediawiki>")
    read, count = read_all_splits(open_source(path, sections=sections), 4)
    assert count == 4
    assert read == list(open_source(path, sections=sections).read(1))


@pytest.mark.parametrize("sections", [False, True])
def test_splits_of_a_multistream_dump_cover_the_dump(tmp_path: Path, sections: bool) -> None:
    streams = [HEAD, *(pages(range(n, n + 10)) for n in range(1, 61, 10)), "</mediawiki>"]
    path = tmp_path / "dump.xml.bz2"
    path.write_bytes(b"".join(bz2.compress(stream.encode()) for stream in streams))
    read, count = read_all_splits(open_source(path, sections=sections), 3)
    assert count == 3
    assert read == list(open_source(path, sections=sections).read(1))


@pytest.mark.parametrize(
    "hiding", ["<!-- {0} -->", "<page id='x'><![CDATA[{0}]]></page>", "<?note {0}?>"]
)
def test_dump_with_pages_in_other_markup_is_one_split(tmp_path: Path, hiding: str) -> None:
    path = tmp_path / "pages.xml"
    hidden = "<page id='no'>x</page>" * 400
    shown = "".join(f"<page id='{n}'>x</page>" for n in range(100))
    path.write_text(f"<pages>{shown}{hiding.format(hidden)}{shown}</pages>")
    read, count = read_all_splits(open_source(path), 4)
    assert count == 1
    assert read == list(open_source(path).read(1))
    assert len(read) in (200, 201)


def test_dump_whose_streams_are_cut_within_pages_is_one_split(tmp_path: Path) -> None:
    content = (HEAD + pages(range(1, 41)) + "</mediawiki>").encode()
    path = tmp_path / "dump.xml.bz2"
    path.write_bytes(b"".join(bz2.compress(content[n : n + 999]) for n in range(0, 99_999, 999)))
    read, count = read_all_splits(open_source(path), 4)
    assert count == 1
    assert read == list(open_source(path).read(1))
    assert len(read) == 32


def test_splits_stop_at_malformed_xml_in_a_dump(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"
    path.write_text(HEAD + pages(range(1, 21)) + "<page><<<" + pages(range(21, 41)))
    read, count = read_all_splits(open_source(path), 4)
    whole = list(open_source(path).read(1))
    assert count == 4
    assert read[:-1] == whole[:-1]  # the last record names the place in its split
