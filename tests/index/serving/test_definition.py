"""The schema of an index stays with its state directory, whatever is removed there."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.engine.errors import StateMismatch
from driftline.index.serving.definition import define, schema_in

SCHEMA = """
[collections.articles.fields]
title = {kind = "text"}
"""


@pytest.fixture
def given(tmp_path: Path) -> Path:
    file = tmp_path / "given.toml"
    file.write_text(SCHEMA)
    define(tmp_path / "state", file)
    return file


def test_a_schema_that_was_removed_is_not_replaced_by_the_default(
    given: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "state"
    (state / "schema.toml").unlink()
    with pytest.raises(StateMismatch, match=r"schema.toml is gone, .*restore it from a copy"):
        define(state, None)
    given.write_text(SCHEMA.replace("articles", "others"))
    with pytest.raises(StateMismatch, match=r"and .*given.toml has another one"):
        define(state, given)
    assert not (state / "schema.toml").exists()
    given.write_text(f"# the same\n{SCHEMA}")
    define(state, given)
    assert "schema.toml is gone, and is made again" in caplog.text
    assert set(schema_in(state).collections) == {"articles"}
    define(state, None)


def test_a_schema_is_kept_if_the_module_beside_it_was_removed(given: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "index_flow.py").unlink()
    given.write_text(SCHEMA.replace("articles", "others"))
    with pytest.raises(StateMismatch, match="has no collection 'articles'"):
        define(state, given)
    define(state, None)
    assert set(schema_in(state).collections) == {"articles"}


def test_an_index_without_a_schema_needs_none(tmp_path: Path) -> None:
    define(tmp_path, None)
    define(tmp_path, None)
    assert "documents" in schema_in(tmp_path).collections
