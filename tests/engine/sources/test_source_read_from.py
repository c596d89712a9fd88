"""read(start) gives exactly the tail of read(1), for every source and every start."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.sources import (
    BadRecord,
    ListSource,
    Repeated,
    Source,
    ZipfSource,
    open_source,
)
from tests.engine.sources.files import dump, everything, page, write

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


def tails_fit(source: Source) -> int:
    """How many records the source has, after comparing each tail with the whole."""
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
    assert tails_fit(source) >= 3


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
    for start in (9, 3, 6):  # a source that was never read from its beginning gives no other
        assert everything(make(), start) == everything(source, start)
    assert tails_fit(source) >= 3


@given(size=st.integers(0, 5), documents=st.integers(0, 17), start=st.integers(0, 20))
def test_repeated_is_the_source_written_out(size: int, documents: int, start: int) -> None:
    """The dumb twin: all rounds in one list."""
    rounds = [
        {"id": f"d{n}" if turn == 1 else f"d{n}~{turn}", "n": n}
        for turn in range(1, documents + 2)
        for n in range(size)
    ]
    twin = ListSource(rounds[:documents])
    source = Repeated(ListSource(rounds[:size]), documents)
    assert everything(source, start) == everything(twin, start)
    assert everything(source, start) == everything(twin, start)  # now it knows the period
