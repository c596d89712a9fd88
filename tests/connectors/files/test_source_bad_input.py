"""For any file contents, sources report exactly the bad records, with a reason."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.connectors.files import open_source
from driftline.connectors.files.formats import json_rows
from driftline.engine.errors import InputError, Unavailable
from driftline.engine.sources import BadRecord, strict
from driftline.engine.sources.record import RAW_CHARS, Malformed
from driftline.engine.wire.codec import pack
from tests.connectors.files.samples import bad, dump, everything, page, write
from tests.connectors.poison import POISON


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": 1', "malformed JSON: Expecting ',' delimiter at column 9"),
        ("[1]", "expected a JSON object in each line, found a value of type list"),
        ('{"id": NaN}', "malformed JSON: NaN is not JSON"),
        ('{"id": 1, "n": [1e999]}', "malformed JSON: 1e999 is too large for a float"),
        ('{"id": 1, "n": ' + "9" * 5000 + "}", "malformed JSON: Exceeds the limit"),
        ('{"id": 1, "n": ' + "9" * 30 + "}", "cannot be sent or stored"),
        ('{"id": 1, "n": "\\ud800"}', "cannot be sent or stored"),
        ('{"id": 1, "n": ' + "[" * 700 + "]" * 700 + "}", "nested more than 100 deep"),
        ("[" * 100_000, "malformed JSON: maximum recursion depth"),
        ('{"id": null}', "the id in field 'id' must be a str or an int, but is of type NoneType"),
    ],
)
def test_bad_json_line_keeps_its_number(tmp_path: Path, line: str, reason: str) -> None:
    path = write(tmp_path / "x.jsonl", f'{{"id": 1}}\n\n{line}\n{{"id": 3}}\n')
    first, second, third = everything(open_source(path))
    assert (first, third) == ((1, {"id": 1}), (3, {"id": 3}))
    assert isinstance(second, BadRecord)
    assert (second.time, second.file) == (2, "x.jsonl")
    assert reason in second.reason
    assert 0 < len(second.text) <= 200
    pack([second.reason, second.text])  # a dead letter must be encodable
    with pytest.raises(InputError, match=r"^x\.jsonl, record 2: ") as raised:
        list(strict(open_source(path).read(1)))
    assert (raised.value.file, raised.value.record) == ("x.jsonl", 2)
    assert list(strict(open_source(path).read(3))) == [(3, {"id": 3})]


def _finite(number: str) -> float:
    if not isfinite(float(number)):
        raise ValueError(number)
    return float(number)


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    is_ascii=st.booleans(),
    replaced=st.tuples(st.integers(0, 99), st.integers(0, 3), st.text('0+-.eE\\"u{}[],: \t\0é')),
)
def test_line_is_decoded_as_by_the_json_module(
    value: object, is_ascii: bool, replaced: tuple[int, int, str]
) -> None:
    text = json.dumps({"value": value}, ensure_ascii=is_ascii)
    start, length, new = replaced
    line = (text[:start] + new + text[start + length :]).encode("utf-8", "replace")
    try:
        expected = json.loads(line, parse_constant=_finite, parse_float=_finite)
    except ValueError:
        expected = None
    rows = list(json_rows([line]))
    if isinstance(expected, dict):
        assert repr(rows) == repr([expected])
    else:
        assert all(isinstance(row, Malformed) for row in rows)


def test_invalid_utf8_is_a_bad_record_in_every_text_format(tmp_path: Path) -> None:
    assert bad(write(tmp_path / "x.txt", b"a\nb\xff\nc\n")) == [
        (2, "not UTF-8: byte 0xff at position 1")
    ]
    assert bad(write(tmp_path / "x.jsonl", b'{"id": 1}\n{"id": "\xd0"}\n')) == [
        (2, "not UTF-8: byte 0xd0 at position 8")
    ]
    assert bad(write(tmp_path / "x.csv", b"a,b\n1,\xff\n2,3\n")) == [(1, "not UTF-8 (line 2)")]
    text = dump([page(1, "A", "x"), page(2, "B", "@")]).encode().replace(b"@", b"\xff")
    [(time, reason)] = bad(write(tmp_path / "x.xml", text))
    assert (time, reason[:40]) == (2, "malformed XML: not well-formed (invalid ")


def test_undecodable_line_is_a_bad_record(tmp_path: Path) -> None:
    def found(name: str, encoding: str, data: bytes) -> list[tuple[str, str]]:
        source = open_source(write(tmp_path / name, data), encoding=encoding)
        bad = [record for record in everything(source) if isinstance(record, BadRecord)]
        assert [record.time for record in bad] == [2], "the surrounding records are good"
        return [(record.reason, record.raw) for record in bad]

    reason = "not CP1252: character 2 cannot be decoded"
    assert found("x.txt", "cp1252", b"\xdf\n\xdf\x81!\n\xdf") == [(reason, "ß\ufffd!")]
    assert found("x.csv", "cp1252", b"id\n1\n2\x81\n3") == [("not CP1252 (line 3)", "2\ufffd")]
    half_of_a_pair = "a\nb\ud83d\nc".encode("utf-16-le", "surrogatepass")
    reason = "not UTF-16-LE: character 2 cannot be decoded"
    assert found("x.txt", "utf-16-le", half_of_a_pair) == [(reason, "b\ufffd")]
    assert found("x.txt", "utf-16-le", "a\n".encode("utf-16-le") + b"b") == [
        ("not UTF-16-LE: character 1 cannot be decoded", "\ufffd")
    ]
    [without_mark] = everything(open_source(tmp_path / "x.txt", encoding="utf-16"))
    assert isinstance(without_mark, BadRecord)
    assert "not start with BOM; name utf-16-le or utf-16-be" in without_mark.reason
    assert found("x.txt", "utf-7", b"a\n+2D0-\nb") == [
        ("not UTF-7: character 1 cannot be decoded", "\ufffd")
    ]


@pytest.mark.parametrize("encoding", ["none", "", "hex", "undefined", "punycode", "a\0b", "зло"])
def test_unknown_encoding_is_rejected(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path / "x.txt", "a")
    with pytest.raises(ValueError, match=r"unknown encoding .*; name one of Python's"):
        open_source(path, encoding=encoding)


def test_rows_that_do_not_match_the_header_are_bad_records(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", 'id,text\n1,a\n2\n3,b,c\n4,"d"e\n5,f\n6,"g')
    found = everything(open_source(path))
    assert found[0] == (1, {"id": "1", "text": "a"})
    assert found[4] == (5, {"id": "5", "text": "f"})
    assert [
        (item.time, item.reason, item.text) for item in found if isinstance(item, BadRecord)
    ] == [
        (2, "1 columns where the header has 2 (line 3)", "2"),
        (3, "3 columns where the header has 2 (line 4)", "3,b,c"),
        (4, "malformed row: ',' expected after '\"' (line 5)", '4,"d"e'),
        (6, "malformed row: unexpected end of data (line 7)", '6,"g'),
    ]
    [(time, reason)] = bad(write(tmp_path / "y.csv", "a,b,a\n1,2,3\n"))
    assert time == 1
    assert reason.startswith("the header has a field twice or without a name: ['a', 'b', 'a']. ")
    assert everything(open_source(write(tmp_path / "z.csv", ""))) == []


@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_carriage_return_inside_a_table_line_is_reported(tmp_path: Path, name: str) -> None:
    reason = "a carriage return inside a line; convert line ends to \\n (line {})"
    assert bad(write(tmp_path / name, "id\n1\n2\r3\n4\n")) == [(2, reason.format(3))]
    [(time, why)] = bad(write(tmp_path / name, "id\r1\r2\r"))
    assert time == 1
    assert why.startswith(f"the header cannot be read: {reason.format(1)}. ")


def test_missing_fields_are_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"key": 1, "body": "x"}\n{"body": "y"}\n{"key": 3}\n')
    first, second, third = everything(open_source(path, id_field="key", text_field="body"))
    assert first == (1, {"id": 1, "key": 1, "body": "x", "text": "x"})
    missing = "which --{0}-field (in Python {0}_field) names, is missing: the record has the fields"
    assert isinstance(second, BadRecord)
    assert second.reason == f"field 'key', {missing.format('id')} 'body'"
    assert isinstance(third, BadRecord)
    assert third.reason == f"field 'body', {missing.format('text')} 'key'"
    found = everything(open_source(path, sections=True, text_field="key"))[0]
    assert isinstance(found, BadRecord)
    assert found.reason == "field 'text' cannot have sections: it is of type int"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("just text", "malformed XML: syntax error: line 1, column 0"),
        ("<html><p>x</p></html>", "the root element is <html>, not <mediawiki> or <pages>"),
        ("   \n", "the XML ends too early: no element found"),
        ('<?xml version="1.0" encoding="none-such"?><pages/>', "malformed XML: unknown encoding"),
    ],
)
def test_xml_without_pages_is_reported_once(tmp_path: Path, content: str, reason: str) -> None:
    [(time, found)] = bad(write(tmp_path / "x.xml", content))
    assert time == 1
    assert found.startswith(reason)


def test_malformed_page_is_skipped(tmp_path: Path) -> None:
    pages = [
        page(1, "A", "x"),
        "<page><title>No id</title><ns>0</ns><revision><text/></revision></page>",
        "<page><id>3</id><ns>0</ns><revision><text/></revision></page>",
        "<page><id>4</id><title>No revision</title><ns>0</ns></page>",
        page(5, "B", ""),
    ]
    path = write(tmp_path / "x.xml", dump(pages))
    assert bad(path) == [
        (2, "a page without a numeric <id>"),
        (3, "a page without <title>"),
        (4, "a page without <revision>"),
    ]
    assert everything(open_source(path), 5) == [(5, {"id": 5, "title": "B", "text": ""})]
    simple = '<pages><page title="t">text</page><page id="2">x</page></pages>'
    assert bad(write(tmp_path / "y.xml", simple)) == [(1, 'a page without the attribute "id"')]


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst"])
def test_truncated_file_gives_a_prefix_and_a_final_bad_record(tmp_path: Path, ending: str) -> None:
    # Numbers that hardly compress, so that a truncated file contains some of the records.
    lines = "".join(f'{{"id": {n}, "text": "{hash((n, n)):x}"}}\n' for n in range(1, 5000))
    whole = write(tmp_path / f"whole.jsonl{ending}", lines)
    part = tmp_path / f"part.jsonl{ending}"
    data, complete = whole.read_bytes(), everything(open_source(whole))
    for size in (0, 5, len(data) // 2, len(data) - 1):
        part.write_bytes(data[:size])
        *found, last = everything(open_source(part))
        assert found == complete[: len(found)]
        assert isinstance(last, BadRecord)
        assert last.time == len(found) + 1
        assert "ends too early" in last.reason


def test_xml_entities_cannot_fill_memory_or_read_files(tmp_path: Path) -> None:
    names = "abcdefghij"
    bomb = "".join(
        f'<!ENTITY {name} "{f"&{names[i - 1]};" * 10 if i else "x" * 100}">'
        for i, name in enumerate(names)
    )
    text = f'<!DOCTYPE pages [{bomb}]><pages><page id="1">&j;</page></pages>'
    [(_, reason)] = bad(write(tmp_path / "bomb.xml", text))
    assert "amplification" in reason
    secret = write(tmp_path / "secret", "hidden")
    outside = f'<!DOCTYPE pages [<!ENTITY s SYSTEM "file://{secret}">]>'
    text = f'{outside}<pages><page id="1">&s;</page></pages>'
    [(time, reason)] = bad(write(tmp_path / "outside.xml", text))
    assert (time, "undefined entity" in reason) == (1, True)


def test_files_that_cannot_be_opened_are_rejected_at_once(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"none\.jsonl: there is no such file"):
        open_source(tmp_path / "none.jsonl")
    with pytest.raises(Unavailable, match="a directory"):
        open_source(tmp_path)
    with pytest.raises(InputError, match=r"x\.xml, record 1: the file is empty; expected XML"):
        open_source(write(tmp_path / "x.xml", ""))


def test_overlong_line_is_a_bad_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftline.connectors.files.formats.MAX_LINE_BYTES", 100_000)
    path = write(tmp_path / "x.txt", "a\n" + "x" * 300_000 + "\nb\n")
    first, second, third = everything(open_source(path))
    assert (first, third) == ((1, {"id": 1, "text": "a"}), (3, {"id": 3, "text": "b"}))
    assert isinstance(second, BadRecord)
    assert (second.reason, second.text) == ("a line longer than 100000 bytes", "x" * 200)


def test_overlong_page_is_a_bad_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftline.connectors.files.formats.MAX_PAGE_BYTES", 200_000)
    small = [page(n, "small", "x" * 1000) for n in range(1, 400)]
    path = write(tmp_path / "x.xml", dump([*small, page(400, "large", "x" * 500_000)]))
    [(time, reason)] = bad(path)
    assert (time, reason.partition(". ")[0]) == (400, "a page of more than 200000 bytes")


NAMES = ["x.jsonl", "x.csv", "x.tsv", "x.txt", "x.xml", "x.jsonl.gz", "x.txt.bz2", "x"]


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    data=st.binary(max_size=200)
    | st.text(alphabet='<page>id="1",{}[]:\n\r\t&;\x00ж', max_size=120).map(str.encode),
    sections=st.booleans(),
    encoding=st.sampled_from(["utf-8", "utf-16", "utf-7", "gb18030", "hz"]),
)
def test_arbitrary_bytes_never_raise_while_reading(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    data: bytes,
    sections: bool,
    encoding: str,
) -> None:
    """Times count from 1 without gaps, all payloads can be encoded, and tails are consistent."""
    path = tmp_path_factory.mktemp("any") / name
    path.write_bytes(data or b" ")
    source = open_source(path, sections=sections, encoding=encoding)
    found = everything(source)
    times = [item.time if isinstance(item, BadRecord) else item[0] for item in found]
    assert times == list(range(1, len(found) + 1))
    for item in found:
        pack([item.reason, item.text] if isinstance(item, BadRecord) else item[1])
    assert everything(source, 2) == found[1:]


@pytest.mark.parametrize("kind", POISON)
def test_poison_record_in_a_file_is_a_bad_record_with_a_short_line(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl"
    records = [{"id": 1}, POISON[kind], {"id": 3}]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    one, bad, three = open_source(path).read(1)
    assert (one, three) == ((1, {"id": 1}), (3, {"id": 3}))
    assert isinstance(bad, BadRecord)
    assert (bad.time, bad.file) == (2, "in.jsonl")
    line = bad.as_line()
    assert len(line) < 2 * RAW_CHARS
    assert json.loads(line)["reason"] == bad.reason
