"""Schemas: valid and invalid files, and the documents that a collection accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.index.documents.schema import (
    DEFAULT,
    DOCUMENT_BYTES_MAX,
    Collection,
    DocumentRefused,
    Schema,
    SchemaError,
    StoredField,
    load_schema,
)

ARTICLES = """
[collections.articles.fields]
year = {kind = "number"}
title = {kind = "text", analyser = "english", weight = 2}
source = {kind = "stored"}
text = {kind = "text"}
tags = {kind = "keyword"}
day = {kind = "date"}
"""


def load(folder: Path, text: str) -> Schema:
    path = folder / "schema.toml"
    path.write_text(text, encoding="utf-8")
    return load_schema(path)


@pytest.fixture
def articles(tmp_path: Path) -> Collection:
    return load(tmp_path, ARTICLES).collections["articles"]


def test_fields_have_the_order_of_the_file_and_are_numbered_by_name(articles: Collection) -> None:
    assert list(articles.by_name) == ["year", "title", "source", "text", "tags", "day"]
    assert [(f.name, f.number, f.analyser.name, f.weight) for f in articles.text_fields] == [
        ("text", 0, "plain", 1.0),
        ("title", 1, "english", 2.0),
    ]
    assert [(f.name, f.number, f.kind) for f in articles.value_fields] == [
        ("day", 0, "date"),
        ("tags", 1, "keyword"),
        ("year", 2, "number"),
    ]
    assert isinstance(articles.by_name["source"], StoredField)
    assert articles.others == "refused"


def test_invalid_schema_file_is_rejected(tmp_path: Path) -> None:
    fields = "[collections.a.fields]\n"
    for text, error in (
        ("", r"the table \[collections\] is missing"),
        ("[collection.a]", r"no key 'collection' \(did you mean 'collections'"),
        ("[collections.a]", "collection 'a' is empty"),
        ("[collections.a]\nothers = 'stored'", "the table of its fields is missing"),
        ("[collections.A.fields]\nx = {}", "collection 'A': a name has"),
        (f"{fields}id = {{kind='text'}}", "field 'id': a name has"),
        (f"{fields}x = {{kind='txt'}}", r"its kind is 'txt' \(did you mean 'text"),
        (f"{fields}x = 'text'", "field 'x' is 'text'; it has to be a table"),
        (f"{fields}x = {{kind='text', analyzer='plain'}}", "did you mean 'analyser'"),
        (f"{fields}x = {{kind='text', analyser='porters'}}", "did you mean 'porter'"),
        (f"{fields}x = {{kind='text', weight={10**400}}}", "the weight is 1000"),
        (f"{fields}x = {{kind='number', weight=1}}", "no key 'weight'"),
        (f"\ufeff{fields}x = {{kind='text'}}", "begins with a byte-order mark; save it"),
        (f"{fields}x = {'9' * 5000}", "a number in it has thousands of digits$"),
        (f"[collections.a]\nothers='kept'\n{fields}x={{kind='text'}}", "others is 'kept'"),
        (fields + "".join(f"x{i}={{kind='text'}}\n" for i in range(257)), "257"),
        ("[collections", "is not valid TOML"),
    ):
        with pytest.raises(SchemaError, match=error) as caught:
            load(tmp_path, text)
        assert str(caught.value).startswith(str(tmp_path / "schema.toml"))
    with pytest.raises(SchemaError, match=r"none\.toml: No such file"):
        load_schema(tmp_path / "none.toml")


def test_valid_documents_are_accepted(articles: Collection) -> None:
    document = {
        "title": "Tea",
        "text": "",
        "tags": ["a", "b"],
        "year": 1990,
        "day": "2020-01-31",
        "source": {"lines": [1, None, {"x": [True, 1.5]}]},
    }
    articles.check("é" * 256, document)
    articles.check("a", dict.fromkeys(document))
    articles.check("a", {"tags": "one", "year": -1.5, "day": "2020-01-31T12:00:00.5+01:00"})
    articles.check("a", {})


def test_invalid_field_value_is_rejected(articles: Collection) -> None:
    cases: list[tuple[str, object, str]] = [
        ("title", 5, "5 is not a text"),
        ("title", "\ud800", "not valid Unicode"),
        ("tags", ["a", None], "null is not a keyword"),
        ("tags", "é" * 513, "1026 bytes"),
        ("year", True, "true is not a number"),
        ("year", float("nan"), "not a finite number"),
        ("year", 10**400, "64 bits"),
        ("day", [False], r"\[false\] is not a date"),
        ("day", "2013-02-30", "not a date: there is no such day"),
        ("source", b"x", "not a JSON value"),
        ("source", {5: 5}, "not a text"),
        ("source", 2**63, "64 bits"),
        ("titel", "x", "no such field.*did you mean 'title'"),
        ("id", "x", "the id is given beside the document"),
    ]
    for field, value, error in cases:
        with pytest.raises(DocumentRefused, match=error) as caught:
            articles.check("a", {"text": "fine", field: value})
        assert caught.value.field == field
        assert str(caught.value).startswith(f"field '{field}': ")


def test_invalid_document_is_rejected() -> None:
    cases: list[tuple[object, object, str]] = [
        (5, {}, "the id 5 is not a text"),
        ("", {}, "0 bytes"),
        ("é" * 257, {}, "514 bytes"),
        ("a\x85b", {}, "control character"),
        ("\udc00", {}, "not valid Unicode"),
        ("a", [], "not a document"),
        ("a", {5: 5}, "not a name of a field"),
        ("a", {f"x{n}": 0 for n in range(257)}, "257 fields"),
        ("a", {"text": "é" * (DOCUMENT_BYTES_MAX // 2)}, "the maximum is 1048576"),
    ]
    for id, document, error in cases:
        with pytest.raises(DocumentRefused, match=error):
            DEFAULT.collections["documents"].check(id, document)


def test_deeply_nested_value_is_rejected_without_recursion() -> None:
    nested: object = 1
    for _ in range(100_000):
        nested = [nested]
    documents = DEFAULT.collections["documents"]
    for field in ("title", "x"):
        with pytest.raises(DocumentRefused, match="nested more than 32 levels deep"):
            documents.check("a", {field: nested})
    for id, document in ((nested, {}), ("a", nested)):
        with pytest.raises(DocumentRefused, match=r"\[\[\[.* is no"):
            documents.check(id, document)


def test_fingerprint_changes_with_the_schema(tmp_path: Path, articles: Collection) -> None:
    documents = DEFAULT.collections["documents"]
    assert documents.fingerprint() == "6fb31fcf500c42e9"
    assert DEFAULT.fingerprint() == "a6501b3d0b1677cc"
    assert articles.fingerprint() == load(tmp_path, ARTICLES).collections["articles"].fingerprint()
    changes = [
        ("english", "german"),
        ("= 2", "= 2.5"),
        ("number", "date"),
        ("tags", "tag"),
        ("articles.fields]", 'articles]\nothers = "stored"\n[collections.articles.fields]'),
    ]
    assert all(before in ARTICLES for before, _ in changes)
    changed = [load(tmp_path, ARTICLES.replace(*change)) for change in changes]
    prints = {schema.collections["articles"].fingerprint() for schema in changed}
    assert len(prints | {articles.fingerprint()}) == len(changes) + 1
