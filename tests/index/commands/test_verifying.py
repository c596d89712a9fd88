"""`driftline verify` of the state directory of a service."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from driftline.engine.durable import replace_file
from driftline.engine.storage.segment_log import HEAD_BYTES, framed, header_of
from driftline.index.client import IndexClient
from driftline.index.commands.verify import verify
from driftline.serve.journal.entries import SegmentHeader
from tests.index.truth.service import Service

Change = Callable[[Path], object]


def run(directory: Path) -> Result:
    """Run the command on a directory."""
    return CliRunner().invoke(verify, [str(directory)])


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state directory of a service that has ended normally."""
    state = tmp_path_factory.mktemp("ended") / "state"
    service = Service(state)
    try:
        service.start()
        with IndexClient(service.url) as index:
            for i in range(100):
                index.put(str(i), {"title": f"Tea {i}"})
            running = run(state)
            assert running.exit_code == 3, running.output
        assert service.end() == 0
    finally:
        service.close()
    return state


def flipped(name: str) -> Change:
    """One bit in the middle of a file is another."""

    def flip(state: Path) -> None:
        data = bytearray((state / name).read_bytes())
        data[len(data) // 2] ^= 1
        replace_file(state / name, bytes(data))

    return flip


def cut(name: str) -> Change:
    """The end of a file is missing."""
    return lambda state: replace_file(state / name, (state / name).read_bytes()[:-1])


def removed(name: str) -> Change:
    return lambda state: (state / name).unlink()


def read(state: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(state)): path.read_bytes()
        for path in state.rglob("*")
        if path.is_file() and path.name != "lock.mdb"
    }


def test_all_parts_of_a_service_are_checked_and_nothing_is_changed(ended: Path) -> None:
    before = read(ended)
    done = run(ended)
    assert (done.exit_code, done.stderr) == (0, "")
    *parts, _ = done.stdout.splitlines()
    words = [part.split() for part in parts]
    assert [(result, Path(path).name) for result, path, *_ in words] == [
        ("ok", "node-0"), ("ok", "input-0"), ("ok", "journal"), ("ok", "documents-0"),
    ]  # fmt: skip
    assert parts[-1].endswith("a checkpoint and 1 segment")
    assert (
        f"is a part of a state directory: verify {ended}" in f"{run(ended / 'journal').exception}"
    )
    assert read(ended) == before


@pytest.mark.parametrize(
    ("change", "said", "end"),
    [
        (flipped("journal/segment-00000000"), "segment-00000000 is damaged at byte", "is refused"),
        (cut("journal/segment-00000000"), "are no whole record; they are cut off", "resumes"),
        (removed("journal/segment-00000000"), "all its segments are gone", "is refused"),
        (
            removed("journal/.driftline/barrier-0.mark"),
            "(the journal) is empty or missing",
            "is refused",
        ),
        (flipped("documents-0/checkpoint"), "; it is rebuilt", "resumes"),
        (removed("documents-0/checkpoint"), "is missing; it is rebuilt", "resumes"),
        (flipped("documents-0/00000001.segment"), "; it is rebuilt", "resumes"),
    ],
)
def test_verify_names_damage_and_its_consequence(
    ended: Path, tmp_path: Path, change: Change, said: str, end: str
) -> None:
    state = tmp_path / "copy"
    shutil.copytree(ended, state)
    change(state)
    done = run(state)
    assert done.exit_code == 1, done.stdout
    *_, problem, ending = done.stdout.splitlines()
    assert said in problem
    assert f"The same command {end}" in ending
    assert problem.lower().count("restore it") == (end != "resumes")
    assert "--fresh" not in done.stdout


@pytest.mark.parametrize("name", ["checkpoint", "00000001.segment"])
def test_verify_refuses_if_a_missing_part_cannot_be_rebuilt(
    ended: Path, tmp_path: Path, name: str
) -> None:
    """The journal has dropped its beginning."""
    state = tmp_path / "copy"
    shutil.copytree(ended, state)
    first = state / "journal/segment-00000000"
    header = header_of(first.parent, 0)
    assert SegmentHeader.decode(header) == SegmentHeader()
    later = framed(SegmentHeader(time=7).encode(), 0, 0, 0)
    assert len(later) == HEAD_BYTES + len(header), "7 takes as many bytes as 0"
    replace_file(first, later + first.read_bytes()[len(later) :])
    assert run(state).exit_code == 0
    removed(f"documents-0/{name}")(state)
    done = run(state)
    assert done.exit_code == 1
    *_, problem, ending = done.stdout.splitlines()
    assert f"{name} is missing; it cannot be rebuilt" in problem
    assert "The same command is refused" in ending


def test_verify_checks_the_service_definition_files(ended: Path, tmp_path: Path) -> None:
    for name, data in (("searchers", b"seven"), ("schema.toml", b"garbage ["), ("registry", b"")):
        state = tmp_path / name
        shutil.copytree(ended, state)
        (state / name).unlink(missing_ok=True)
        if data:
            (state / name).write_bytes(data)
        done = run(state)
        assert done.exit_code == 1
        assert str(state / name) in done.stdout
