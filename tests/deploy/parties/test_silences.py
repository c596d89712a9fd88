"""Which processes are killed because nothing is heard of them, and which are not."""

from __future__ import annotations

import pytest

from driftline.coordinator.coordinator import Phase
from driftline.deploy.parties.silences import PATIENCE_S, Running, Silences
from driftline.deploy.parties.watch import Watch
from driftline.engine.wire.messages import Alive, Report, encode

MISSING_S = 5.0


class Command:
    """A command whose processes say what a test lets them say, and that looks after them."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.silences = Silences(MISSING_S)
        self.running = {"master": Running("m1", 11), "node-0": Running("n1", 12)}
        self.deaths = 0
        self.now = 1000.0
        self.killed: list[tuple[str, float]] = []
        """(process, when it was to be killed)"""

    def hear(self, name: str, process: str, silent: tuple[tuple[str, str, int], ...] = ()) -> None:
        self.watch.now = self.now
        report = Report((), Phase.RUNNING.value, "", (), process=process, silent=silent)
        self.watch.receive(encode((name, 0, 0), report))

    def look(self) -> None:
        due = self.silences.look(self.now, self.running, self.watch, lambda name: self.deaths)
        self.killed += [(name, self.now) for name in due]

    def pass_time(
        self, seconds: float, master: str = "m1", silent: tuple[str, str] | None = None
    ) -> None:
        """The `master` says twice a second that a (node, process) is silent; "": it is silent."""
        since, until = self.now, self.now + seconds
        while self.now < until:
            self.now += 0.5
            if master:
                told = () if silent is None else ((*silent, int((self.now - since) * 1000)),)
                self.hear("master", master, told)
            self.look()


def test_a_node_that_the_master_misses_is_killed_once_after_a_while() -> None:
    command = Command()
    began = command.now
    command.pass_time(PATIENCE_S, silent=("node-0", "n1"))
    assert command.killed == []
    command.pass_time(1.0, silent=("node-0", "n1"))
    [(name, when)] = command.killed
    assert name == "node-0"
    assert when - began == pytest.approx(PATIENCE_S, abs=0.6)


def test_a_node_that_is_heard_again_in_time_is_not_killed() -> None:
    command = Command()
    for _ in range(5):
        command.pass_time(PATIENCE_S - 1, silent=("node-0", "n1"))
        command.pass_time(0.5)
    assert command.killed == []


def test_a_node_that_answers_the_watch_does_not_hang_whatever_the_master_hears() -> None:
    command = Command()
    for _ in range(10):
        command.hear("node-0", "n1")
        command.pass_time(MISSING_S - 1, silent=("node-0", "n1"))
    assert command.killed == []


@pytest.mark.parametrize(("process", "killed"), [("n1", []), ("n0", ["node-0"])])
def test_a_node_that_is_busy_with_a_function_while_masters_change_is_not_killed(
    process: str, killed: list[str]
) -> None:
    """It has no time to learn where the next master is; its heartbeat says that it lives."""
    command = Command()
    del command.running["master"]  # masters run elsewhere
    command.hear("node-0", "n1")
    while command.now < 1000 + 3 * (MISSING_S + PATIENCE_S):
        command.watch.now = command.now
        command.watch.receive(encode(("node-0", 0, 0), Alive(process, 7, 1)))
        command.now += 0.5
        command.hear("master", "m2", (("node-0", "", int(1000 * (command.now - 1000))),))
        command.look()
    assert [name for name, _ in command.killed][:1] == killed


def test_a_new_master_does_not_begin_the_patience_with_a_silent_node_anew() -> None:
    command = Command()
    del command.running["master"]  # masters run elsewhere
    command.hear("node-0", "n1")
    began = command.now
    for number in range(2, 9):
        command.pass_time(MISSING_S, f"m{number}")
        command.pass_time(PATIENCE_S / 2, f"m{number}", silent=("node-0", ""))
    [(name, when), *_] = command.killed
    assert name == "node-0"
    assert when - began < 2 * (PATIENCE_S + MISSING_S)


def test_a_process_that_starts_is_not_silent_however_long_it_takes() -> None:
    command = Command()
    command.hear("node-0", "n0")
    command.hear("master", "m0")
    command.pass_time(100 * PATIENCE_S, master="")
    command.pass_time(100 * PATIENCE_S, silent=("node-0", "n0"))
    command.pass_time(100 * PATIENCE_S, silent=("node-0", ""))
    assert command.killed == []


def test_a_node_that_a_new_master_has_never_heard_is_killed_if_it_had_begun() -> None:
    command = Command()
    command.hear("node-0", "n1")
    command.pass_time(PATIENCE_S + MISSING_S + 1, silent=("node-0", ""))
    assert [name for name, _ in command.killed] == ["node-0"]


def test_a_late_message_of_the_process_before_does_not_hide_that_the_new_one_hangs() -> None:
    command = Command()
    command.hear("node-0", "n1")
    command.pass_time(PATIENCE_S + MISSING_S + 1, silent=("node-0", "n0"))
    assert [name for name, _ in command.killed] == ["node-0"]


@pytest.mark.parametrize("name", ["master", "node-0"])
def test_an_answer_of_the_process_before_may_come_after_those_of_the_new_one(name: str) -> None:
    command = Command()
    command.hear("master", "m1")
    command.hear("node-0", "n1")
    command.hear(name, f"{name[0]}0")
    if name == "master":
        command.pass_time(PATIENCE_S + MISSING_S + 1, master="")
    else:
        command.pass_time(PATIENCE_S + MISSING_S + 1, silent=("node-0", "n1"))
    assert [name for name, _ in command.killed] == [name]


def test_what_the_master_has_said_of_the_process_before_is_not_true_of_a_new_one() -> None:
    command = Command()
    command.hear("master", "m1", (("node-0", "n0", 60_000),))
    command.hear("node-0", "n1")
    command.look()
    assert not command.silences._noticed


def test_a_master_that_says_nothing_is_killed_and_the_standstill_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    command = Command()
    command.pass_time(2.0)
    heard = command.now
    command.pass_time(MISSING_S + PATIENCE_S + 1, master="")
    [(name, when)] = command.killed
    assert name == "master"
    assert when - heard == pytest.approx(MISSING_S + PATIENCE_S, abs=1.1)
    assert "no progress for 10 s: nothing is heard of the master (pid 11)" in caplog.messages
    assert any("kill -CONT 11" in text for text in caplog.messages)


def test_what_a_silent_master_has_said_of_nodes_kills_nobody() -> None:
    command = Command()
    command.pass_time(1.0, silent=("node-0", "n1"))
    command.pass_time(MISSING_S + PATIENCE_S - 1, master="")
    assert command.killed == []


def test_time_in_which_the_whole_machine_stood_still_does_not_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    command = Command()
    command.pass_time(PATIENCE_S - 2, silent=("node-0", "n1"))
    for _ in range(20):
        command.now += 3600.0
        command.look()
        command.pass_time(1.0, master="")
    assert command.killed == []
    assert not any("no progress" in text for text in caplog.messages)


def test_deaths_without_progress_give_more_time_to_a_function_that_keeps_the_lock() -> None:
    command = Command()
    command.deaths = 2
    command.pass_time(4 * PATIENCE_S, silent=("node-0", "n1"))
    assert command.killed == []
    command.pass_time(1.0, silent=("node-0", "n1"))
    assert [name for name, _ in command.killed] == ["node-0"]
