"""ZeroMQ runtime: what wakes it, where it listens, and what ends it."""

from __future__ import annotations

import gc
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
import zmq

from driftline.deploy.runtime import threads as module
from driftline.deploy.runtime.loop import runtime as runtime_module
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.threads import ThreadDied
from driftline.engine.wire.messages import AskPromise, Message, encode
from driftline.engine.wire.role import IOJob, Role

LONG_S = 60.0
"""How long a runtime would wait if nothing woke it."""


class RecordingRole(Role):
    """Role that records its messages and the results of its jobs."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.received: list[tuple[str, Message]] = []
        self.results: list[object] = []

    def handle(self, sender: str, message: Message) -> None:
        self.received.append((sender, message))

    def channel_lost(self, sender: str) -> None:
        raise AssertionError(f"{sender} lost something")

    def on_job_done(self, job: IOJob, result: object) -> None:
        self.results.append(result)

    def tick(self, now: float) -> float:
        return now + LONG_S


class EchoRole(RecordingRole):
    """Role that returns each message to its sender."""

    def handle(self, sender: str, message: Message) -> None:
        self.send(sender, message)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    runtime = Runtime(lambda job: f"did {job}")
    yield runtime
    runtime.close(linger_ms=0)


def until(runtime: Runtime, *received: list[object] | list[tuple[str, Message]]) -> None:
    """Run until all of these contain something.

    The wait must end by a wake-up, not by the timeout.
    """
    begun = monotonic()
    while not all(received):
        runtime.step(wait_s=LONG_S)
    assert monotonic() - begun < LONG_S / 2, "the runtime was not woken"


@pytest.mark.parametrize("parties", [1, 2])
def test_finished_job_wakes_the_loop(runtime: Runtime, parties: int) -> None:
    listeners = [RecordingRole(f"node-{i}") for i in range(parties)]
    for listener in listeners:
        runtime.add(listener, f"inproc://{listener.name}")
        listener.jobs.append(IOJob())
    runtime.step()
    until(runtime, *(listener.results for listener in listeners))
    assert [listener.results for listener in listeners] == [["did IOJob()"]] * parties


@pytest.mark.parametrize("parties", [1, 2])
def test_message_wakes_the_loop_and_an_empty_one_is_ignored(runtime: Runtime, parties: int) -> None:
    listeners = [RecordingRole(f"node-{i}") for i in range(parties)]
    addresses = [runtime.add(listener, "tcp://127.0.0.1:*") for listener in listeners]
    assert all(address.startswith("tcp://127.0.0.1:") for address in addresses)
    runtime.step(wait_s=0)
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.linger = 0
        socket.connect(addresses[-1])
        for data in (b"", encode(("front-0", 0, 1), AskPromise(7)), b""):
            socket.send(data)
        until(runtime, listeners[-1].received)
    assert listeners[-1].received == [("front-0", AskPromise(7))]
    assert listeners[-1].malformed == 0


def test_role_in_its_own_thread_answers_its_partner(runtime: Runtime) -> None:
    node = RecordingRole("node-0")
    runtime.add(node, "inproc://node-0")
    runtime.host(EchoRole("consumer"), node)
    runtime.step(wait_s=0)
    node.send("consumer", AskPromise(7))
    runtime.flush(node)
    until(runtime, node.received)
    assert node.received == [("consumer", AskPromise(7))]


class FailingRole(RecordingRole):
    """Role that raises an unexpected error."""

    def handle(self, sender: str, message: Message) -> None:
        raise SystemExit(0)


@pytest.mark.parametrize("error", [struct.error("not a header"), MemoryError(), SystemExit(0)])
def test_unexpected_job_error_ends_the_loop(error: BaseException) -> None:
    def execute_job(job: IOJob) -> object:
        raise error

    runtime = Runtime(execute_job)
    listener = RecordingRole("node-0")
    runtime.add(listener, "inproc://node-0")
    listener.jobs.append(IOJob())
    runtime.step()
    with pytest.raises(ThreadDied, match=f"Job of node-0 died: {type(error).__name__}"):
        until(runtime, listener.results)
    runtime.close(linger_ms=0)


def test_error_of_a_role_in_its_thread_ends_the_loop_of_its_partner(runtime: Runtime) -> None:
    node = RecordingRole("node-0")
    runtime.add(node, "inproc://node-0")
    runtime.host(FailingRole("consumer"), node)
    node.send("consumer", AskPromise(7))
    runtime.flush(node)
    with pytest.raises(ThreadDied, match="consumer died: SystemExit"):
        until(runtime, node.received)


def test_hung_job_is_logged_and_reported_until_it_finishes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SLOW_S", 0.05)
    monkeypatch.setattr(module, "JOB_POLL_S", 0.01)
    frozen = threading.Event()
    runtime = Runtime(lambda job: frozen.wait(LONG_S))
    party = RecordingRole("node-0")
    runtime.add(party, "inproc://node-0")
    party.jobs.append(IOJob())
    with caplog.at_level("INFO"):
        while not party.obstacle:
            runtime.step(wait_s=0.01)
        assert "node-0 has waited for its disk for 0 s, to carry out a job" in party.obstacle
        assert "is it frozen, or overloaded?" in caplog.text
        frozen.set()
        until(runtime, party.results)
    assert party.obstacle == ""
    assert "node-0 can carry out a job again" in caplog.text
    runtime.close(linger_ms=0)


def test_runtime_closes_while_the_garbage_collector_is_frozen() -> None:
    runtime = Runtime()
    runtime.connect("inproc://node-0")
    closing = threading.Thread(target=runtime.close, daemon=True)
    gc.freeze()  # as another runtime of this process does
    try:
        closing.start()
        closing.join(LONG_S)
    finally:
        gc.unfreeze()
    assert not closing.is_alive()


def test_runtime_closes_after_a_signal_has_interrupted_the_creation_of_a_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = Runtime()

    def interrupt(context: object, socket: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(zmq.Context, "_add_socket", interrupt)
        with pytest.raises(KeyboardInterrupt) as interrupted:
            runtime.connect("inproc://node-0")
    closing = threading.Thread(target=runtime.close, daemon=True)
    closing.start()
    closing.join(LONG_S)
    assert interrupted.tb  # it holds the socket
    assert not closing.is_alive()


def test_unused_connection_is_closed_and_reopened_on_demand(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "UNUSED_S", 0.01)
    monkeypatch.setattr(module, "JOB_POLL_S", 0.01)
    one, other = RecordingRole("one"), RecordingRole("other")
    runtime.add(one, f"ipc://{tmp_path}/one")
    one.addresses["other"] = runtime.add(other, f"ipc://{tmp_path}/other")
    one.send("other", AskPromise(1))
    until(runtime, other.received)
    way = runtime._connections["one", "other"]
    deadline = monotonic() + LONG_S
    while runtime._connections and monotonic() < deadline:
        runtime.step(wait_s=0.02)
    assert not runtime._connections
    assert way.socket is None
    other.received.clear()
    one.send("other", AskPromise(2))
    runtime.flush(one)
    until(runtime, other.received)
    assert [message for _, message in other.received] == [AskPromise(2)]
