"""The state directory of a service: moved, or with a part that does not belong to the others."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from driftline.engine.errors import StateMismatch
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import make_plan
from driftline.index.client import IndexClient
from driftline.index.commands.definition import define, pin_searcher_count
from driftline.serve.running.directories import open_service
from tests.index.truth.service import Service

Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What a service has left that was killed while its node stood still."""
    base = tmp_path_factory.mktemp("left")
    service = Service(base / "state")
    try:
        service.start()
        with IndexClient(service.url) as index:
            index.put("1", {"title": "kept"}, wait="visible")
            node = service.parts()["node-0"]
            node.suspend()
            put = httpx.put(f"{service.url}/documents/2", json={"title": "acknowledged"})
            assert put.status_code == 200
        service.kill()
        with suppress(psutil.NoSuchProcess):  # it is killed with its parent, though it is stopped
            node.kill()
        node.wait()
        yield base / "state"
    finally:
        service.close()


@pytest.fixture
def copy(left: Path, tmp_path: Path) -> Path:
    shutil.copytree(left, tmp_path / "copy")
    return tmp_path / "copy"


def opened(state: Path) -> None:
    """What a start does before any process is started."""
    flow = load_flow(define(state, None))
    open_service(state, flow, make_plan(flow), 1, accept_changed_code=True)


def test_a_state_directory_may_be_moved_and_nothing_acknowledged_is_lost(copy: Path) -> None:
    service = Service(copy.rename(copy.with_name("moved")))
    try:
        service.start()
        with IndexClient(service.url) as index:
            label = index.put("3", {"title": "new"}, wait="durable")
            assert label
            assert index.count("acknowledged").total == 1
        assert service.end() == 0
    finally:
        service.close()


def test_number_of_searchers_cannot_change(tmp_path: Path) -> None:
    define(tmp_path, None)
    assert pin_searcher_count(tmp_path, 2) == 2
    assert pin_searcher_count(tmp_path, None) == 2
    with pytest.raises(StateMismatch, match=r"has 2 searchers, .* give --searchers 2"):
        pin_searcher_count(tmp_path, 3)
    (tmp_path / "searchers").write_bytes(b"two")
    with pytest.raises(StateMismatch, match="searchers is damaged: write the number"):
        pin_searcher_count(tmp_path, None)


def removed(name: str) -> Change:
    return lambda state: shutil.rmtree(state / name)


def garbage(name: str) -> Change:
    return lambda state: (state / name).write_bytes(b"\xff\x00")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (removed("input-0"), r"input-0 \(the log of input 0\) is empty or missing"),
        (removed("journal"), r"journal \(the journal\) is empty or missing"),
        (lambda state: (state / "registry").unlink(), "registry is not there: it was removed"),
        (lambda state: (state / "journal/.driftline/identity").unlink(), "identity is gone"),
        (garbage("journal/.driftline/identity"), "identity, which says whose .* is damaged"),
        (garbage("journal/segment-00000000"), "segment-00000000 is damaged at byte 0"),
    ],
)
def test_mismatched_state_directory_is_rejected_with_remedies(
    copy: Path, change: Change, said: str
) -> None:
    change(copy)
    with pytest.raises(StateMismatch, match=said) as refused:
        opened(copy)
    text = str(refused.value)
    assert "restore the whole state directory of the service from one copy, or remove" in text
    assert "--output" not in text
    assert "--fresh" not in text
