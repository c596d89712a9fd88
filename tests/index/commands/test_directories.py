"""State directory of a service: moved, verified, or with parts that do not belong together."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest
from click.testing import CliRunner, Result

from driftline.engine.durable import replace_file
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.storage.segment_log import HEAD_BYTES, framed, header_of
from driftline.index.client import IndexClient
from driftline.index.commands.definition import define, pin_searcher_count
from driftline.index.commands.verify import verify
from driftline.serve.journal.entries import SegmentHeader
from driftline.serve.running.directories import open_service
from tests.index.truth.service import ServiceProcess

Change = Callable[[Path], object]


def run_verify(directory: Path) -> Result:
    return CliRunner().invoke(verify, [str(directory)])


@pytest.fixture(scope="module")
def state_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Yield two state directories: of a service killed while its node was suspended, and a copy of
    it, in which the service was started again and shut down normally."""
    base = tmp_path_factory.mktemp("left")
    service, moved = ServiceProcess(base / "state"), ServiceProcess(base / "moved")
    try:
        service.start()
        with IndexClient(service.url) as index:
            for i in range(100):
                index.put(str(i), {"title": f"Tea {i}"})
            running = run_verify(base / "state")
            assert running.exit_code == 3, running.output
            node = service.processes()["node-0"]
            node.suspend()
            put = httpx.put(f"{service.url}/documents/new", json={"title": "acknowledged"})
            assert put.status_code == 200
        service.kill()
        with suppress(psutil.NoSuchProcess):  # it may have died with its parent, although suspended
            node.kill()
        node.wait()
        shutil.copytree(base / "state", base / "moved")
        moved.start()
        with IndexClient(moved.url, session=True) as index:
            index.put("newer", {"title": "written"})
            assert index.count("acknowledged").total == 1
            assert index.count("tea").total == 100
        assert moved.terminate() == 0
        yield base / "state", base / "moved"
    finally:
        service.close()
        moved.close()


@pytest.fixture
def cleanly_stopped(state_directories: tuple[Path, Path]) -> Path:
    return state_directories[1]


def check_start(state: Path) -> None:
    """Run the checks of a start without starting processes."""
    flow = load_flow(define(state, None))
    open_service(state, flow, make_plan(flow), 1, accept_changed_code=True)


def test_number_of_searchers_cannot_change(tmp_path: Path) -> None:
    define(tmp_path, None)
    assert pin_searcher_count(tmp_path, 2) == 2
    assert pin_searcher_count(tmp_path, None) == 2
    with pytest.raises(StateMismatch, match=r"has 2 searchers, .* use --searchers 2"):
        pin_searcher_count(tmp_path, 3)
    (tmp_path / "searchers").write_bytes(b"two")
    with pytest.raises(StateMismatch, match="searchers is damaged: write the number"):
        pin_searcher_count(tmp_path, None)


def remove_part(name: str) -> Change:
    def remove(state: Path) -> None:
        path = state / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def write_file(name: str, data: bytes = b"\xff\x00") -> Change:
    return lambda state: (state / name).write_bytes(data)


def flip_bit(name: str) -> Change:
    """Flip a bit in the middle of a file, the first one that matches a pattern."""

    def flip(state: Path) -> None:
        path = min(state.glob(name))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        replace_file(path, bytes(data))

    return flip


def truncate_file(name: str) -> Change:
    """Truncate a file by one byte."""
    return lambda state: replace_file(state / name, (state / name).read_bytes()[:-1])


MISMATCHES: list[tuple[Change, str]] = [
    (remove_part("input-0"), r"input-0 \(the log of input 0\) is empty or missing"),
    (remove_part("journal"), r"journal \(the journal\) is empty or missing"),
    (remove_part("registry"), "registry is not there: it was removed"),
    (remove_part("journal/.driftline/identity"), "identity, which .* is missing"),
    (write_file("journal/.driftline/identity"), "identity, which names the flow .* is damaged"),
    (write_file("journal/segment-00000000"), "segment-00000000 is damaged at byte 0"),
]


def test_mismatched_state_directory_is_rejected_with_remedies(
    state_directories: tuple[Path, Path], tmp_path: Path
) -> None:
    for number, (change, said) in enumerate(MISMATCHES):
        copy = shutil.copytree(state_directories[0], tmp_path / str(number))
        change(copy)
        with pytest.raises(StateMismatch, match=said) as refused:
            check_start(copy)
        text = str(refused.value)
        assert "restore the whole state directory of the service from one copy, or remove" in text
        assert "--output" not in text
        assert "--fresh" not in text


# `driftline verify`.


def read(state: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(state)): path.read_bytes()
        for path in state.rglob("*")
        if path.is_file() and path.name != "lock.mdb"
    }


def test_verify_checks_all_parts_and_changes_nothing(cleanly_stopped: Path) -> None:
    before = read(cleanly_stopped)
    done = run_verify(cleanly_stopped)
    assert (done.exit_code, done.stderr) == (0, "")
    *parts, _ = done.stdout.splitlines()
    words = [part.split() for part in parts]
    assert [(result, Path(path).name) for result, path, *_ in words] == [
        ("ok", "node-0"), ("ok", "input-0"), ("ok", "journal"), ("ok", "documents-0"),
    ]  # fmt: skip
    assert re.search("a checkpoint and [12] segments?$", parts[-1])
    part = run_verify(cleanly_stopped / "journal")
    assert f"is a part of a state directory: verify {cleanly_stopped}" in f"{part.exception}"
    assert read(cleanly_stopped) == before


DAMAGES: list[tuple[Change, str, str]] = [
    (flip_bit("journal/segment-00000000"), "segment-00000000 is damaged at byte", "is rejected"),
    (
        truncate_file("journal/segment-00000000"),
        "of an incomplete record, which the next opening removes",
        "resumes",
    ),
    (remove_part("journal/segment-00000000"), "all its segments are gone", "is rejected"),
    (
        remove_part("journal/.driftline/barrier-0.owner"),
        "(the journal) is empty or missing",
        "is rej",
    ),
    (flip_bit("documents-0/checkpoint"), "; it is rebuilt", "resumes"),
    (remove_part("documents-0/checkpoint"), "is missing; it is rebuilt", "resumes"),
    (flip_bit("documents-0/*.segment"), "; it is rebuilt", "resumes"),
]


def test_verify_names_damage_and_its_consequence(cleanly_stopped: Path, tmp_path: Path) -> None:
    for number, (change, said, end) in enumerate(DAMAGES):
        state = shutil.copytree(cleanly_stopped, tmp_path / str(number))
        change(state)
        done = run_verify(state)
        assert done.exit_code == 1, done.stdout
        *_, problem, ending = done.stdout.splitlines()
        assert said in problem
        assert f"The command of the run {end}" in ending
        assert problem.lower().count("restore it") == (end != "resumes")
        assert "--fresh" not in done.stdout


def test_verify_rejects_a_missing_part_that_cannot_be_rebuilt(
    cleanly_stopped: Path, tmp_path: Path
) -> None:
    """A missing part is not rebuildable if the journal no longer has its first records."""
    for name in ("checkpoint", min((cleanly_stopped / "documents-0").glob("*.segment")).name):
        state = shutil.copytree(cleanly_stopped, tmp_path / name)
        first = state / "journal/segment-00000000"
        header = header_of(first.parent, 0)
        assert SegmentHeader.decode(header) == SegmentHeader()
        later = framed(SegmentHeader(time=7).encode(), 0, 0, 0)
        assert len(later) == HEAD_BYTES + len(header), "both headers must have the same size"
        replace_file(first, later + first.read_bytes()[len(later) :])
        assert run_verify(state).exit_code == 0
        (state / "documents-0" / name).unlink()
        done = run_verify(state)
        assert done.exit_code == 1
        *_, problem, ending = done.stdout.splitlines()
        assert f"{name} is missing; it cannot be rebuilt" in problem
        assert "The command of the run is rejected" in ending


def test_verify_checks_the_service_definition_files(cleanly_stopped: Path, tmp_path: Path) -> None:
    for change, name in (
        (write_file("searchers", b"seven"), "searchers"),
        (write_file("schema.toml", b"garbage ["), "schema.toml"),
        (remove_part("registry"), "registry"),
    ):
        state = shutil.copytree(cleanly_stopped, tmp_path / name)
        change(state)
        done = run_verify(state)
        assert done.exit_code == 1
        assert str(state / name) in done.stdout
