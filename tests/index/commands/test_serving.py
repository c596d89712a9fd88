"""`driftline serve`: of a flow, of an index with a schema, and its error messages."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

import driftline.deploy.runtime.claims as claims
from driftline.deploy.cluster.records import AgentRole
from driftline.deploy.cluster.zookeeper_tree import FLOWS, NAMES, ZooKeeperTree
from driftline.engine.errors import DriftlineError, InUse
from driftline.index.client import IndexClient
from driftline.index.commands.definition import define, schema_in
from driftline.index.commands.serve import serve
from driftline.index.http.page import FILES
from driftline.serve.http.metrics import figures_in
from tests.index.truth.service import ROOT, ServiceProcess
from tests.test_docs import SERVED_TOO, blocks
from tests.zookeepers import show

SCHEMA = """
[collections.articles.fields]
title = {kind = "text", analyser = "english"}
year = {kind = "number"}
"""

DEFAULT = """
[collections.documents]
others = "stored"
[collections.documents.fields]
title = {kind = "text", weight = 2.0}
text = {kind = "text"}
"""

TWO = """
from driftline import Flow
flow = Flow("two")
for name in ("one", "other"):
    flow.source(name).sink(f"{name}-out")
"""


def failure_message(*arguments: object) -> str:
    """Return the output and the error of a command that fails."""
    ended = CliRunner().invoke(serve, [*map(str, arguments)])
    assert ended.exit_code
    assert ended.exception is not None
    assert isinstance(ended.exception, DriftlineError | SystemExit), ended.exception
    return f"{ended.output} {ended.exception}"


def test_flow_values_are_served_again_after_a_kill(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path / "state", "examples/wordcount.py")
    try:
        service.start()
        with httpx.Client(base_url=service.url, timeout=30.0) as http:
            for count in (1, 2):
                label = http.post("/records", json={"text": "the cat"}).json()["label"]
                response = http.get("/views/counts/the", params={"after": label})
                assert response.json()["value"] == count, response.text
            before = response.json()
        service.kill()
        service.start()
        with httpx.Client(base_url=service.url, timeout=30.0) as http:
            label = http.post("/records", json={"text": "the end"}).json()["label"]
            now = http.get("/views/counts/the", params={"after": label}).json()
            assert now["value"] == 3
            then = http.get("/views/counts/the", params={"at": before["at"]})
            assert then.json() == before
            assert http.get("/views/counts/nowhere").status_code == 404
            figures = exported_metrics(http.get("/metrics").text)
            assert figures == documented_metrics(without="searchers")
        assert service.terminate() == 0
    finally:
        service.close()


def exported_metrics(metrics: str) -> dict[str, str]:
    """Return the descriptions of the metrics of a service, by name."""
    families = list(text_string_to_metric_families(metrics))
    assert len({family.name for family in families}) == len(families), "a metric occurs twice"
    return {
        family.name: family.documentation.rstrip(".")
        for family in families
        if family.name.startswith("driftline_service_")
    }


def documented_metrics(without: str) -> dict[str, str]:
    """Return the descriptions on the page about metrics, without those of one part."""
    page = (ROOT / "docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| `(driftline_service_\w+)` \| (.*) \| (.*) \|$", page, re.MULTILINE)
    return {name: text for name, parts, text in rows if parts != without}


def test_an_index_keeps_its_schema(tmp_path: Path) -> None:
    schema, state = tmp_path / "schema.toml", tmp_path / "state"
    schema.write_text(SCHEMA)
    define(state, schema)
    schema.write_text(SCHEMA.replace("english", "plain"))
    assert "another schema" in failure_message(
        "--state", state, "--schema", schema, "--http", "[::1]:0"
    )
    schema.write_text(SCHEMA.replace("articles", "others"))
    said = failure_message("--state", state, "--schema", schema, "--http", "127.0.0.1:0")
    assert "has no collection" in said


def test_index_metrics_and_example_of_adding_a_collection(
    tmp_path: Path,
) -> None:
    """Run the example of `docs/howto-service.md` with the schema of `query.md`."""
    schema, state = tmp_path / "schema.toml", tmp_path / "state"
    service = ServiceProcess(state, "--searchers", "2")
    later = ServiceProcess(state, "--schema", str(schema))
    try:
        service.start()
        with httpx.Client(base_url=service.url, timeout=30.0) as http:
            assert http.get("/").content == (FILES / "index.html").read_bytes()
            for id in range(8):  # some on each shard
                http.put(f"/documents/{id}?wait=visible", json={"title": "tea"})
            searched = http.get("/search", params={"q": "tea"})
            assert float(searched.headers["server-timing"].removeprefix("app;dur=")) > 0
            metrics = http.get("/metrics").text
        assert exported_metrics(metrics) == documented_metrics(without="key-value views")
        gateway = figures_in(metrics)["gateway"]
        assert gateway["outputs"] >= 8
        for name in "delay_p50_s", "delay_p99_s":
            assert 0 < gateway[name] < 10
        with IndexClient(service.url) as index:
            index.put("1", {"title": "Running", "year": 1990})
            index.put("2", {"title": "Ran"})
            for id in range(2, 8):
                index.delete(str(id))
        assert service.terminate() == 0
        schema.write_text(DEFAULT + blocks(ROOT / "docs/reference/query.md", "toml")[0])
        later.start()  # writes before the restart do not count in the delay
        metrics = httpx.get(f"{later.url}/metrics").text
        assert "delay_p50_s" not in figures_in(metrics)["gateway"]
        (shown,) = blocks(SERVED_TOO, "python")
        names: dict[str, object] = {}
        exec(shown.replace("http://127.0.0.1:8080", later.url), names)
        assert later.terminate() == 0
        later.start()  # from checkpoints with both collections
        with IndexClient(later.url, session=True) as index:
            index.delete("none")  # later reads of the session see all writes before this one
            found = [index.count("run").total, index.collection("articles").count("run").total]
            assert found == [0, 1]
            assert index.collection("articles").count("*").total == 2
        assert later.terminate() == 0
    finally:
        service.close()
        later.close()


def test_running_index_rejects_new_collections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "CLAIM_S", 0.0)
    schema, state = tmp_path / "schema.toml", tmp_path / "state"
    schema.write_text(SCHEMA)
    define(state, schema)
    running = claims.claim(state / "run.lock")
    define(state, schema)  # the same schema again
    schema.write_text(SCHEMA + SCHEMA.replace("articles", "more"))
    with pytest.raises(InUse):
        define(state, schema)
    running.release()
    define(state, schema)
    assert set(schema_in(state).collections) == {"articles", "more"}


def test_invalid_serve_arguments_are_rejected_with_a_message(
    tmp_path: Path, empty_tree: ZooKeeperTree
) -> None:
    state = tmp_path / "state"
    assert "not HOST:PORT" in failure_message("--http", "8080")
    assert "token" in failure_message("--http", "0.0.0.0:0", "--state", state)
    assert "has its own flow" in failure_message("examples/wordcount.py", "--searchers", 2)
    assert "must be given together" in failure_message("--key", "README.md")
    assert "--name cannot be given without a cluster" in failure_message("--name", "web")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "in use" in failure_message("--http", f"127.0.0.1:{port}", "--state", state)
        at, zmq = ("--http", "127.0.0.1:0", "--state", state), f"tcp://127.0.0.1:{port}"
        assert "in use" in failure_message(*at, "--zmq", zmq)
    assert "with tcp://" in failure_message(*at, "--zmq", "somewhere")
    pair = "--certificate", "README.md", "--key", "README.md"
    assert "README.md and README.md are not a certificate" in failure_message(*at, *pair)
    assert "there is no cluster" in failure_message(*at, "--zookeeper", empty_tree.zookeeper)
    show(empty_tree, "a", AgentRole.MASTER)
    named = "--zookeeper", empty_tree.zookeeper, "--name", "../a"
    assert f"'../a' cannot be the name of a service: {NAMES}" in failure_message(*at, *named)
    assert not empty_tree.children(FLOWS)
    nowhere = "--http", "127.0.0.1:0", "--state", "/proc/nowhere"
    for flow in ((), ("examples/wordcount.py",)):
        assert "state directory /proc/nowhere: No" in failure_message(*flow, *nowhere)
    two = tmp_path / "two.py"
    two.write_text(TWO)
    assert "two.py has 2 sources: a service needs a flow with one source" in failure_message(
        two, *at
    )
    assert not state.exists(), "a rejected command must not create the directory"


def test_missing_packages_are_named_with_the_extra_to_install() -> None:
    code = """
import sys
for name in "httpx", "starlette":
    sys.modules[name] = None
import driftline
try:
    driftline.IndexClient
except Exception as error:
    print(error)
sys.argv = ["driftline", "serve"]
driftline.main()
"""
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    assert "IndexClient needs httpx: pip install 'driftline[client]'" in said.stdout
    assert said.returncode == 1
    assert "driftline serve needs starlette: pip install 'driftline[index]'" in said.stderr
    assert "Traceback" not in said.stderr
