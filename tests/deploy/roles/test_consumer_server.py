"""Consumer server: stores each bundle of a barrier's newest incarnation once, and confirms it."""

import logging

import pytest
from msgspec.structs import replace

from driftline.connectors.sinks import LastStored, MemoryConsumer
from driftline.deploy.roles.consumer import ConsumerServer, DeadLetters
from driftline.engine.errors import (
    DriftlineError,
    MalformedMessage,
    PayloadError,
    StateMismatch,
    Unavailable,
)
from driftline.engine.sources import BadRecord
from driftline.engine.wire.messages import (
    Bundle,
    BundleStored,
    Delayed,
    Failed,
    FetchLast,
    LastBundle,
    Message,
    MessageHeader,
    Stop,
    decode,
    encode,
)
from tests.connectors.sinks.bundles import BARRIER, GROUPS, items, stream


class ConsumerWithError(MemoryConsumer):
    """Consumer that fails with a given error."""

    def __init__(self) -> None:
        super().__init__()
        self.error: DriftlineError | None = None
        self.closed = 0

    def deliver(self, bundle: Bundle) -> None:
        if self.error is not None:
            raise self.error
        super().deliver(bundle)

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        if self.error is not None:
            raise self.error
        return super().last(barrier, groups)

    def close(self) -> None:
        self.closed += 1


class ConsumerDialogue:
    """A server with its consumer and its answers."""

    def __init__(self) -> None:
        self.consumer = ConsumerWithError()
        self.made: list[str] = []
        self.server = ConsumerServer(self.make)

    def make(self, barrier: str) -> ConsumerWithError:
        self.made.append(barrier)
        return self.consumer

    def send(self, message: Message, sender: str = "node-0") -> list[tuple[str, Message]]:
        """Send a message and return the answers."""
        self.server.receive(encode(MessageHeader(sender, 1, 0), message))
        answers = [(to, decode(data)[1]) for to, data in self.server.outbox]
        self.server.outbox.clear()
        return answers


@pytest.fixture
def dialogue() -> ConsumerDialogue:
    """Provide a server without earlier messages."""
    return ConsumerDialogue()


NUMBER = 7
"""Number of a question; the answer repeats it."""


def ask(
    incarnation: int, barrier: str = BARRIER, address: str = "ipc://a", number: int = NUMBER
) -> FetchLast:
    return FetchLast(barrier, incarnation, GROUPS, address, number)


def stored(bundle: Bundle) -> list[tuple[str, Message]]:
    return [("node-0", BundleStored(bundle.barrier, bundle.incarnation, bundle.t_last))]


def test_new_barrier_gets_an_empty_last_bundle(dialogue: ConsumerDialogue) -> None:
    answer = LastBundle(BARRIER, 3, NUMBER, (), -1, 0)
    assert dialogue.send(ask(3), "node-5") == [("node-5", answer)]
    assert dialogue.server.addresses == {"node-5": "ipc://a"}


def test_stored_bundles_are_confirmed_and_reported_as_last(dialogue: ConsumerDialogue) -> None:
    bundles = stream(5)
    dialogue.send(ask(1))
    for bundle in bundles:
        assert dialogue.send(bundle) == stored(bundle)
    assert dialogue.consumer.items == items(bundles)
    last = bundles[-1]
    answer = LastBundle(BARRIER, 2, 0, last.blobs, last.t_last, last.checksum)
    assert dialogue.send(ask(2, number=0)) == [("node-0", answer)]


def test_repeated_bundle_is_confirmed_and_not_stored_again(dialogue: ConsumerDialogue) -> None:
    first, second = stream(3)[1:]
    dialogue.send(ask(1))
    for bundle in (first, first, second, second, first):
        assert dialogue.send(bundle) == stored(bundle)
    assert dialogue.consumer.items == items([first, second])


def test_bundle_of_an_earlier_incarnation_is_ignored(dialogue: ConsumerDialogue) -> None:
    first, second = stream(3)[1:]
    dialogue.send(ask(1))
    dialogue.send(first)
    dialogue.send(ask(2))
    assert dialogue.send(second) == []
    assert dialogue.send(replace(second, incarnation=2)) == stored(replace(second, incarnation=2))
    assert dialogue.consumer.items == items([first, second])


def test_restarted_server_ignores_bundles_before_a_fetch_request(
    dialogue: ConsumerDialogue,
) -> None:
    bundle = stream(2)[1]
    assert dialogue.send(bundle) == []
    assert dialogue.consumer.items == []
    dialogue.send(ask(1))
    assert dialogue.send(bundle) == stored(bundle)


def test_unavailable_consumer_is_logged_once_and_retried(
    dialogue: ConsumerDialogue, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = stream(2)[1]
    dialogue.send(ask(1))
    dialogue.consumer.error = Unavailable("disk full")
    with caplog.at_level(logging.WARNING, "driftline"):
        for _ in range(3):
            delayed = [("node-0", Delayed(BARRIER, 1, "disk full"))]
            assert dialogue.send(bundle) == delayed
            assert dialogue.send(ask(1)) == delayed
            dialogue.send(ask(1, "../unknown"), "node-1")
        dialogue.consumer.error = None
        assert dialogue.send(ask(1)) == [("node-0", LastBundle(BARRIER, 1, NUMBER, (), -1, 0))]
    assert dialogue.send(bundle) == stored(bundle)
    about = [text for text in caplog.messages if text.startswith(BARRIER)]
    assert about == [
        "barrier-0: disk full; retrying",
        "barrier-0: its consumer is available again; it had failed 6 times in 0.0 s",
    ]


@pytest.mark.parametrize("error", [PayloadError("sink 'x' cannot"), StateMismatch("another flow")])
def test_permanent_consumer_error_fails_the_run(
    dialogue: ConsumerDialogue, error: DriftlineError
) -> None:
    dialogue.send(ask(1))
    dialogue.consumer.error = error
    failed = Failed(1, type(error).__name__, str(error))
    assert dialogue.send(stream(1)[0]) == [("node-0", failed)]
    assert dialogue.send(ask(2), "node-3") == [("node-3", replace(failed, incarnation=2))]
    assert dialogue.server.addresses["node-3"] == "ipc://a"


@pytest.mark.parametrize(
    "message",
    [
        Stop("", "", ""),
        BundleStored(BARRIER, 1, 1),
        FetchLast(BARRIER, 1, (0,), "ipc://a", NUMBER),  # type: ignore[arg-type]
        FetchLast(BARRIER, 1, (0, "63"), "ipc://a", NUMBER),  # type: ignore[arg-type]
        Bundle(BARRIER, 1, (0, 63, 64), (), 1, 0),  # type: ignore[arg-type]
        Bundle(BARRIER, 1, GROUPS, (b"no blob",), 1, 0),
        Bundle(BARRIER, 1, GROUPS, (7,), 1, 0),  # type: ignore[arg-type]
    ],
)
def test_other_messages_are_malformed(dialogue: ConsumerDialogue, message: Message) -> None:
    dialogue.send(ask(1))
    assert dialogue.send(message) == []
    assert dialogue.server.malformed == 1
    with pytest.raises(MalformedMessage):  # when it is decoded, or when it is handled
        dialogue.server.handle("node-0", decode(encode(MessageHeader("node-0", 1, 0), message))[1])
    assert dialogue.consumer.items == []


def test_dead_letters_are_logged_without_further_bundles(
    caplog: pytest.LogCaptureFixture,
) -> None:
    letters = DeadLetters("out/dead-letters")
    server = ConsumerServer(lambda barrier: ConsumerWithError(), letters)
    for now in (1.0, 1.1, 1.2):
        letters.add_bad_records(now, [BadRecord(7, "in.jsonl", "no JSON", "x")])
    now = 1.2
    while now < 50:
        now = server.tick(now)
    assert [vars(record)["fields"]["count"] for record in caplog.records] == [1, 2]
