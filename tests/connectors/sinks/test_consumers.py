"""Contract of all consumers, whatever they write to."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from driftline.connectors.sinks import (
    NO_BUNDLE,
    Consumer,
    LastStored,
    MemoryConsumer,
)
from driftline.engine.errors import MalformedMessage, StateMismatch, Unavailable
from driftline.engine.wire.bundles import to_blob
from driftline.engine.wire.codec import pack
from driftline.engine.wire.messages import Bundle
from tests.connectors.sinks.bundles import (
    BARRIER,
    GROUPS,
    OPEN,
    in_lmdb,
    items,
    json_lines,
    stream,
    uninterrupted,
    written,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["json-lines", "lmdb"])
def kind(request: pytest.FixtureRequest) -> str:
    """Provide the name of a durable connector."""
    return str(request.param)


@pytest.fixture(params=["memory", "json-lines", "lmdb"])
def consumer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Consumer]:
    """Provide each kind of consumer."""
    opened = (
        MemoryConsumer() if request.param == "memory" else OPEN[request.param](tmp_path / "out")
    )
    yield opened
    opened.close()


def last_of(bundle: Bundle) -> LastStored:
    return LastStored(bundle.t_last, bundle.checksum, bundle.blobs)


def test_last_bundle_is_returned_completely(consumer: Consumer) -> None:
    for bundle in stream(9):
        consumer.deliver(bundle)
        assert consumer.last(BARRIER, GROUPS) == last_of(bundle)
    consumer.close()
    consumer.close()


def test_redelivered_bundle_is_ignored(consumer: Consumer) -> None:
    bundles = stream(6)
    for bundle in [*bundles, bundles[2], bundles[5]]:
        consumer.deliver(bundle)
    assert consumer.last(BARRIER, GROUPS) == last_of(bundles[5])
    if isinstance(consumer, MemoryConsumer):
        assert consumer.items == items(bundles) == consumer.by_barrier[BARRIER]


def test_other_key_groups_are_rejected(consumer: Consumer) -> None:
    consumer.deliver(stream(1)[0])
    with pytest.raises(StateMismatch, match="another number of nodes"):
        consumer.last(BARRIER, (0, 127))


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        pack(("x", 0, 1)),
        to_blob([(1, 0)], [-2], [1]),
        to_blob([(-1, 0)], [0], [1]),
        to_blob([(True, 0)], [0], [1]),
        to_blob([(1, 0)], ["x"], [1]),  # type: ignore[list-item]
    ],
)
def test_malformed_bundle_is_rejected_completely(consumer: Consumer, blob: bytes) -> None:
    good, after = stream(3)[1:]
    with pytest.raises(MalformedMessage):
        consumer.deliver(Bundle(BARRIER, 1, GROUPS, (*good.blobs, blob), good.t_last, 0))
    assert consumer.last(BARRIER, GROUPS) == NO_BUNDLE
    consumer.deliver(after)
    assert consumer.last(BARRIER, GROUPS) == last_of(after)


def test_reopened_consumer_resumes(kind: str, tmp_path: Path) -> None:
    bundles = stream(12)
    for bundle in bundles:
        consumer = OPEN[kind](tmp_path / "out")
        consumer.deliver(bundle)
        consumer.close()
        consumer = OPEN[kind](tmp_path / "out")
        assert consumer.last(BARRIER, GROUPS) == last_of(bundle)
        consumer.close()
    assert written(kind, tmp_path / "out") == uninterrupted(kind, tmp_path / "other", bundles)


@pytest.mark.parametrize("opened", [json_lines, in_lmdb])
def test_outputs_of_another_flow_are_rejected(
    opened: Callable[..., Consumer], tmp_path: Path
) -> None:
    opened(tmp_path, BARRIER, "me").close()
    with pytest.raises(StateMismatch, match="another run"):
        opened(tmp_path, BARRIER, "you")
    with pytest.raises(StateMismatch, match="another run"):
        opened(tmp_path, "barrier-1", "you")
    opened(tmp_path, BARRIER, "me").close()


def test_directory_with_other_files_is_rejected(kind: str, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text("{}\n")
    with pytest.raises(StateMismatch, match=r"holds mine\.jsonl, which cannot be "):
        OPEN[kind](tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.jsonl"]


def test_second_writer_of_a_barrier_is_rejected(kind: str, tmp_path: Path) -> None:
    first = OPEN[kind](tmp_path)
    with pytest.raises(Unavailable, match="another process is writing"):
        OPEN[kind](tmp_path)
    first.close()
    OPEN[kind](tmp_path).close()


@pytest.mark.parametrize("name", ["../barrier-0", "barrier-0/../../x-1", "barrier-٣"])
def test_invalid_barrier_name_is_rejected(kind: str, tmp_path: Path, name: str) -> None:
    with pytest.raises(MalformedMessage, match="not the name of a barrier"):
        (json_lines if kind == "json-lines" else in_lmdb)(tmp_path, name)


def test_concurrent_processes_can_open_one_new_directory(kind: str, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.connectors.sinks import bundles as b;"
        "open = b.json_lines if sys.argv[1] == 'json-lines' else b.in_lmdb;"
        "open(Path(sys.argv[2]), sys.argv[3], sys.argv[4]).deliver(b.stream(1)[0])"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, kind, tmp_path, f"barrier-{number}", f"{number % 2}"],
            cwd=ROOT,
            stderr=subprocess.PIPE,
        )
        for number in range(4)
    ]
    errors = [process.communicate()[1] for process in processes]
    refused = [b"StateMismatch" in error for error in errors]
    assert refused in ([False, True] * 2, [True, False] * 2), errors


@pytest.mark.slow
def test_killed_and_resumed_run_writes_the_bytes_of_an_uninterrupted_one(
    kind: str, tmp_path: Path
) -> None:
    count, chance, confirmed, kills = 300, Random(kind), -1, 0
    path = tmp_path / "out"
    command = [sys.executable, "-m", "tests.connectors.sinks.bundles"]
    arguments = [*command, kind, str(path), str(count)]
    while True:
        with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for _ in range(chance.randint(0, 35)):
                confirmed = int(process.stdout.readline() or confirmed)
            os.kill(process.pid, signal.SIGKILL)
            rest = process.stdout.read().split()
        kills += process.returncode == -signal.SIGKILL
        confirmed = int(rest[-1]) if rest else confirmed
        consumer = OPEN[kind](path)
        t_last = consumer.last(BARRIER, GROUPS).t_last
        consumer.close()
        assert confirmed <= t_last <= confirmed + 10, "confirmed bundles are stored"
        confirmed = t_last
        if t_last == 10 * (count - 1) + 9:
            break
    assert kills, "a fast machine writes many bundles before a kill"
    bundles = stream(count)
    assert written(kind, path) == uninterrupted(kind, tmp_path / "other", bundles)


def test_directory_of_another_format_is_rejected(tmp_path: Path) -> None:
    json_lines(tmp_path).close()
    with pytest.raises(StateMismatch, match="format"):
        in_lmdb(tmp_path)
