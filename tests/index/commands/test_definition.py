"""Schema of an index in its state directory, and files that are missing there."""

from __future__ import annotations

from importlib.util import module_from_spec
from pathlib import Path
from zipimport import zipimporter

import pytest

from driftline import run_reference
from driftline.deploy.cluster.wheels import check_wheel
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import make_plan
from driftline.index.commands.definition import WHEEL_FLOW, define, schema_in, write_wheel
from driftline.index.documents.records import Write
from driftline.index.documents.schema import DEFAULT

SCHEMA = """
[collections.articles.fields]
title = {kind = "text"}
"""


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    file = tmp_path / "given.toml"
    file.write_text(SCHEMA)
    define(tmp_path / "state", file)
    return file


def test_missing_schema_is_rejected_and_not_replaced(schema_file: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "schema.toml").unlink()
    for schema in (None, schema_file):
        with pytest.raises(
            StateMismatch, match=r"schema.toml, .* is missing: restore it from a copy"
        ):
            define(state, schema)
    assert not (state / "schema.toml").exists()


def test_schema_is_kept_if_the_flow_module_is_missing(schema_file: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "index_flow.py").unlink()
    schema_file.write_text(SCHEMA.replace("articles", "others"))
    with pytest.raises(StateMismatch, match="has no collection 'articles'"):
        define(state, schema_file)
    define(state, None)
    assert set(schema_in(state).collections) == {"articles"}


# The wheel of the flow.

ARTICLE = Write("articles", "1", {"title": "Running"})
DOCUMENT = Write("documents", "1", {"title": "Running"})


def flow_of_wheel(wheel: Path) -> Flow:
    """Return the flow that a host imports from a wheel."""
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


def check(state: Path, schema: Path | None, write: Write) -> None:
    here = load_flow(define(state, schema))
    wheel = write_wheel(state)
    there = flow_of_wheel(wheel)
    assert make_plan(here).identity() == make_plan(there).identity()
    outputs = [list(run_reference(flow, [[write.record()]])) for flow in (here, there)]
    assert outputs[0] == outputs[1] != []
    data = wheel.read_bytes()
    wheel.unlink()
    assert write_wheel(state).read_bytes() == data, "the same schema must produce the same bytes"


def test_host_builds_the_same_flow_from_the_schema(schema_file: Path, tmp_path: Path) -> None:
    check(tmp_path / "default", None, DOCUMENT)
    check(tmp_path / "own", schema_file, ARTICLE)
    assert schema_in(tmp_path / "default").fingerprint() == DEFAULT.fingerprint()
