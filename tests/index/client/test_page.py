"""What the page about the client shows works."""

from __future__ import annotations

import shutil
from pathlib import Path

import certifi
import pytest

from driftline import IndexClient
from tests.index.client.serving import Serving
from tests.test_docs import SERVED, blocks


def test_python_blocks_on_page_run(
    service: Serving,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text(f"{service.token}\n")
    shutil.copy(certifi.where(), tmp_path / "authority.pem")
    names: dict[str, object] = {"documents": [("4", {"title": "Green tea"})]}
    for block in blocks(SERVED, "python"):
        text = block.replace('"http://127.0.0.1:8080"', f"{service.url!r}, token={service.token!r}")
        exec(text.replace("tcp://127.0.0.1:5555", service.zmq), names)
    told = capsys.readouterr().out
    assert "<mark>Tea</mark>" in told
    index = names["index"]
    assert isinstance(index, IndexClient)
    assert {hit.id for hit in index.search("title:(rice OR coffee)").hits} == {"2", "3"}
    assert told.splitlines()[-1].endswith(" 1 None")
    index.close()
