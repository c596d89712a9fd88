"""The flow of an index as a wheel."""

from __future__ import annotations

from importlib.util import module_from_spec
from pathlib import Path
from zipimport import zipimporter

from driftline import run_reference
from driftline.deploy.cluster.wheels import check_wheel
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import plan
from driftline.index.documents.records import Write
from driftline.index.documents.schema import DEFAULT, Schema, load_schema
from driftline.index.documents.writes import document_flow
from driftline.index.serving.wheel import FLOW, wheel_of, write_wheel
from tests.index.serving.test_serving import SCHEMA

ARTICLE = Write("articles", "1", {"title": "Running", "year": 1990})
DOCUMENT = Write("documents", "1", {"title": "Running"})


def made_by(wheel: Path) -> Flow:
    """The flow that a host imports from a wheel."""
    check_wheel(wheel)
    name, _, flow = FLOW.partition(":")
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
    assert plan(here).identity() == plan(there).identity()
    outputs = [list(run_reference(flow, [[write.record()]])) for flow in (here, there)]
    assert outputs[0] == outputs[1] != []


def test_a_host_makes_the_same_flow_from_it(tmp_path: Path) -> None:
    check(tmp_path, DEFAULT, DOCUMENT)
    own = tmp_path / "own"
    own.mkdir()
    (own / "schema.toml").write_text(SCHEMA)
    check(own, load_schema(own / "schema.toml"), ARTICLE)


def test_the_same_schema_gives_the_same_bytes() -> None:
    assert wheel_of(SCHEMA.encode()) == wheel_of(SCHEMA.encode())
    assert len({wheel_of(schema) for schema in (None, b"", SCHEMA.encode())}) == 3
