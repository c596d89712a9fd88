"""Log lines are kept by flow, bounded, and read from all agents by time."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from driftline.deploy.cluster.agents import logbook
from driftline.deploy.cluster.agents.answering import Answering
from driftline.deploy.cluster.agents.logbook import Logbook, Piece, thread_of
from driftline.deploy.cluster.agents.reading import LogLines
from driftline.deploy.cluster.flows.records import AgentRecord, Kind
from driftline.deploy.cluster.tree.folder import Folder
from driftline.deploy.host.sockets.transport import LOCAL, Network
from driftline.deploy.keys.keyset import add_keys
from driftline.engine.errors import Unavailable
from driftline.engine.events import FIELDS, log
from tests.deploy.cluster.machine import COMMAND, Machine


def record(text: str, *, flow: str = "", created: float = 0.0) -> logging.LogRecord:
    """A log record of an agent, about a flow."""
    made = log.makeRecord(log.name, logging.INFO, __file__, 0, text, (), None)
    setattr(made, FIELDS, {"event": "test", "flow": flow} if flow else {"event": "test"})
    made.created = created
    return made


def messages(piece: Piece) -> list[str]:
    return [json.loads(line)["message"] for line in piece.lines.splitlines()]


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Logbook]:
    book = Logbook(tmp_path)
    yield book
    book.close()


def test_lines_are_read_from_a_place_each_once_while_files_come_and_go(
    book: Logbook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(logbook, "FILE_BYTES", 1000)
    monkeypatch.setattr(logbook, "PIECE_BYTES", 700)
    found: list[str] = []
    since = 0
    for number in range(200):
        book.emit(record(f"line {number}", flow="a"))
        book.emit(record(f"other {number}", flow="b"))
        while number % 7 == 0:
            piece = book.read("a", since, 1)
            found += messages(piece)
            since = piece.until
            if not piece.more:
                break
    assert found == [f"line {number}" for number in range(197)]
    assert messages(book.read("a", -1, 3)) == ["line 197", "line 198", "line 199"]
    assert messages(book.read("a", since + 10**9, 1)) == ["line 199"]
    assert 0 < len(messages(book.read("a", 0, 1))) < 10, "the oldest that is there, and on"
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.jsonl")) < 2 * 4 * 1000
    assert book.read("c", 0, 1) == book.read("../flow-a", -1, 1) == Piece(0, False, b"")


def test_a_line_that_was_cut_off_by_a_kill_is_no_line_and_places_go_on(
    book: Logbook, tmp_path: Path
) -> None:
    book.emit(record("whole", flow="a"))
    [file] = (tmp_path / logbook.FOLDER / "flow-a").iterdir()
    with file.open("ab") as end:
        end.write(b'{"message": "cut o')
    first = book.read("a", -1, 10)
    assert messages(first) == messages(book.read("a", 0, 10)) == ["whole"]
    again = Logbook(tmp_path)
    again.emit(record("next", flow="a"))
    assert messages(again.read("a", first.until, 10)) == ["next"]
    again.close()


def test_a_line_belongs_to_the_flow_of_its_thread_whatever_user_code_says(book: Logbook) -> None:
    def say() -> None:
        book.emit(record("of a", flow="../b"))
        book.emit(record("x" * 10**6))

    thread = threading.Thread(target=say, name=thread_of("a"))
    thread.start()
    thread.join()
    book.emit(record("of the agent"))
    own, long = messages(book.read("a", -1, 9))
    assert own == "of a"
    assert 1000 < len(long) < logbook.LINE_BYTES
    assert messages(book.read("", -1, 9)) == ["of the agent"]


def test_a_disk_that_is_full_costs_lines_and_says_so(
    book: Logbook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    book.emit(record("before", flow="a"))

    def full(file: int, data: bytes, offset: int) -> None:
        os.pwrite(file, data[:10], offset)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(logbook, "write_at", full)
        book.emit(record("lost", flow="a"))
        book.emit(record("lost", flow="a"))
    book.emit(record("after", flow="a"))
    assert messages(book.read("a", 0, 9)) == ["before", "after"]
    told = [each.getMessage() for each in caplog.records]
    assert [text.partition(": ")[2] or text.partition("; ")[2] for text in told] == [
        "No space left on device; `driftline logs` will lack lines",
        "it lacks 2 lines",
    ]


@pytest.mark.parametrize("keyed", [False, True])
def test_lines_of_all_agents_are_read_by_time_over_ipc_and_with_keys(
    keyed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of three agents does not answer. `follow` gives what comes later, and only that."""
    network = LOCAL
    if keyed:
        add_keys(tmp_path / "keys", ["host"], {}, {})
        network = Network("tcp", "127.0.0.1", keys=str(tmp_path / "keys" / "host.key"))
    books = {}
    with ExitStack() as stack:
        tree = Folder(tmp_path / "reg")
        stack.callback(tree.close)
        for number, name in enumerate(("a", "b")):
            sockets = tmp_path / name
            sockets.mkdir()
            book = books[name] = Logbook(tmp_path / f"state-{name}")
            stack.callback(book.close)
            answering = Answering(book, network, sockets)
            stack.callback(answering.end)
            shown = AgentRecord(name, Kind.NODE, "host", 1, address=answering.address)
            tree.hold(f"agents/{name}", shown.encode())
            for when in range(10):
                book.emit(record(f"{name}{when}", created=2.0 * when + number))
        silent = AgentRecord("silent", Kind.NODE, "host", 1, address="ipc:///nowhere/at/all")
        tree.hold("agents/silent", silent.encode())
        own = tmp_path / "own"
        own.mkdir()
        lines = LogLines(tree, own, network, count=4, answer_s=5.0 if keyed else 1.0)
        rounds = lines.read(follow=True)
        first = next(rounds)
        assert [line.record.getMessage() for line in first] == ["a8", "b8", "a9", "b9"]
        assert lines.silent == {"silent"}
        assert json.loads(first[0].as_json())["agent"] == "a"
        assert " a  " in first[0].as_text()
        tree.let_go("agents/silent")
        books["a"].emit(record("later"))
        later = [line.record.getMessage() for _ in range(2) for line in next(rounds)]
        assert later == ["later"]
        rounds.close()
        with pytest.raises(Unavailable, match="no agent 'c' now; it has a, b"):
            LogLines(tree, own, network, agent="c", count=1)
        with pytest.raises(Unavailable, match="no flow 'f'"):
            LogLines(tree, own, network, flow="f", count=1)


FLOW = """
import logging
from driftline import Flow

def said(record):
    logging.getLogger("mine").warning("seen %s", record["n"])
    print("printed", record["n"])
    return record["n"]

flow = Flow("talk")
flow.source("numbers").map(said).sink("out")
"""


def test_what_a_flow_says_is_read_from_all_its_processes_and_followed(tmp_path: Path) -> None:
    (tmp_path / "talk.py").write_text(FLOW)
    (tmp_path / "in.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    told = tmp_path / "followed"
    with Machine(tmp_path) as machine, told.open("wb") as file:
        follow = subprocess.Popen(
            [COMMAND, "logs", "--follow", "--registry", tmp_path / "reg"], stdout=file
        )
        try:
            for name in ("one", "two"):
                machine.command("submit", tmp_path / "talk.py", "--name", name, "--input",
                                tmp_path / "in.jsonl", "--output", tmp_path / name)  # fmt: skip
            machine.until(lambda: told.read_text().count("is over here") == 6, "all lines")
            follow.send_signal(signal.SIGINT)
            assert follow.wait(30) == 130
        finally:
            follow.kill()
            follow.wait()
        followed = told.read_text().splitlines()
        machine.command("logs", "none", status=1)
        text = machine.command("logs", "one")
        of_both = machine.command("logs").splitlines()
        lines = [json.loads(line) for line in machine.command("logs", "--json").splitlines()]
        alone = machine.command("logs", "one", "--agent", "front").splitlines()
    assert sum("seen 1" in line for line in followed) == 2, "each once, of either flow"
    assert "node/node-0" in text
    assert "flow two" not in text
    said = [line.split()[2:4] for line in of_both if line.endswith("seen 1")]
    assert sorted(said) == [["one", "node/node-0"], ["two", "node/node-0"]]
    assert "one node/node-0" not in text, "there is one flow only"
    of_one = [line for line in lines if line["flow"] == "one"]
    assert len(of_one) == len(text.splitlines())
    assert {line["agent"] for line in of_one} == {"master", "node", "front"}
    assert [line["message"] for line in of_one if line["agent"] == "node"].count("seen 2") == 1
    assert "printed 2" in text
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    assert any(line["flow"] == "" and "is at work" in line["message"] for line in lines)
    assert alone
    assert all(" front" in line for line in alone)
