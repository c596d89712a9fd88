"""The schema of an index stays with its state directory, whatever is removed there."""

from __future__ import annotations

from importlib.util import module_from_spec
from pathlib import Path
from zipimport import zipimporter

import pytest

from driftline import run_reference
from driftline.deploy.cluster.wheels import check_wheel
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import make_plan
from driftline.index.commands.definition import WHEEL_FLOW, define, schema_in, wheel_of, write_wheel
from driftline.index.documents.records import Write
from driftline.index.documents.schema import DEFAULT, Schema, load_schema
from driftline.index.documents.writes import document_flow

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


# The flow as a wheel.

ARTICLE = Write("articles", "1", {"title": "Running"})
DOCUMENT = Write("documents", "1", {"title": "Running"})


def made_by(wheel: Path) -> Flow:
    """The flow that a host imports from a wheel."""
    check_wheel(wheel)
    name, _, flow = WHEEL_FLOW.partition(":")
    spec = zipimporter(str(wheel)).find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, flow)
    assert isinstance(found, Flow)
    return found


def check(state: Path, schema: Schema, write: Write) -> None:
    here, there = document_flow(schema), made_by(write_wheel(state))
    assert make_plan(here).identity() == make_plan(there).identity()
    outputs = [list(run_reference(flow, [[write.record()]])) for flow in (here, there)]
    assert outputs[0] == outputs[1] != []


def test_host_builds_the_same_flow_from_the_schema(tmp_path: Path) -> None:
    check(tmp_path, DEFAULT, DOCUMENT)
    own = tmp_path / "own"
    own.mkdir()
    (own / "schema.toml").write_text(SCHEMA)
    check(own, load_schema(own / "schema.toml"), ARTICLE)


def test_the_same_schema_gives_the_same_bytes() -> None:
    assert wheel_of(SCHEMA.encode()) == wheel_of(SCHEMA.encode())
    assert len({wheel_of(schema) for schema in (None, b"", SCHEMA.encode())}) == 3
