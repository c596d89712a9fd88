"""Unknown clients cannot crash the intake, fill its memory, or lock out others."""

from __future__ import annotations

import tracemalloc
from itertools import count

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.connectors.logs.received import PRODUCERS_MAX, ReceivedSource
from driftline.deploy.roles.intake import (
    MAGIC,
    Intake,
    IntakeKind,
    IntakeReply,
    decode_answer,
    decode_request,
)
from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import RECORD_DEPTH_MAX, pack
from driftline.simulation.world.disks import LogDisk
from tests.engine.wire.test_codec import nested

NOW_US = 1_000_000_000


class IntakeBench:
    """An intake over a log in memory, which receives messages one by one."""

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self.log = LogDisk("log")
        self.source = ReceivedSource(self.log, lambda: NOW_US, producers_max=producers_max)
        self.intake = Intake(self.source)
        self.reader = self.source.entries(1)

    def handle(self, data: bytes) -> list[IntakeReply]:
        """Handle a message, store all received records, and return all answers."""
        self.intake.take([b"route", data])
        while True:
            self.intake.turn()
            while next(self.reader, None) is not None:
                pass
            if not self.intake.jobs:
                break
            job = self.intake.jobs.pop(0)
            self.intake.on_job_done(job, self.log.execute_job(job))
        answers = [decode_answer(data)._replace(below=0) for _, data in self.intake.answers]
        self.intake.answers.clear()
        return answers

    def handle_fields(
        self, kind: IntakeKind, producer: str, session: int, *rest: object
    ) -> list[IntakeReply]:
        return self.handle(pack((MAGIC, kind, producer, session, *rest)))


ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.sampled_from([msgpack.Timestamp(1, 2), msgpack.Timestamp(1 << 60), MAGIC, *IntakeKind])
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=3))
)
KEYS = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=2).map(tuple), max_leaves=3)
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
FIELDS = (
    st.just(MAGIC) | VALUES,
    st.sampled_from([*IntakeKind]) | VALUES,
    st.sampled_from("pq") | VALUES,
    st.integers(0, 3) | VALUES,
    st.integers(0, 3) | VALUES,
    VALUES,
)


@settings(max_examples=25)
@given(st.lists(st.tuples(*FIELDS).flatmap(lambda f: st.sampled_from([f[:n] for n in range(7)]))))
def test_no_msgpack_message_crashes_the_intake(messages: list[tuple[object, ...]]) -> None:
    bench = IntakeBench()
    for message in messages:
        bench.handle(msgpack.packb(message))
        bench.source.validate()


@given(
    st.binary(max_size=60) | st.binary(max_size=20).map(lambda b: pack((MAGIC, 2, "p"))[:-1] + b)
)
def test_no_bytes_crash_the_intake(data: bytes) -> None:
    bench = IntakeBench()
    for kind in b"\x94\x95\x96":
        bench.handle(data)
        bench.handle(bytes([kind]) + data)


MALFORMED = (
    b"",
    b"\xff\xfe garbage",
    pack("text"),
    pack((MAGIC,)),
    pack((MAGIC + 1, IntakeKind.HELLO, "p", 1)),
    pack((MAGIC, 99, "p", 1)),
    pack((MAGIC, [], "p", 1)),
    pack((MAGIC, IntakeKind.ACK, "p", 1)),
    pack((MAGIC, IntakeKind.HELLO, "p", 1, 2)),
    pack((MAGIC, IntakeKind.HELLO, 5, 1)),
    pack((MAGIC, IntakeKind.HELLO, "", 1)),
    pack((MAGIC, IntakeKind.HELLO, "x" * 256, 1)),
    pack((MAGIC, IntakeKind.HELLO, "p", "1")),
    pack((MAGIC, IntakeKind.HELLO, "p", -1)),
    pack((MAGIC, IntakeKind.RECORD, "p", 1, 1.5, "a")),
    pack((MAGIC, IntakeKind.RECORD, "p", 1, 1 << 63, "a")),
    pack((MAGIC, IntakeKind.RECORD, "p", 1, True, "a")),
    pack((MAGIC, IntakeKind.END, "p", 1, None)),
)


def test_malformed_messages_are_dropped() -> None:
    bench = IntakeBench()
    for data in MALFORMED:
        assert bench.handle(data) == []
    assert bench.intake.malformed == len(MALFORMED)
    assert bench.handle_fields(IntakeKind.RECORD, "p", 1, 1, "a")[0].kind is IntakeKind.ACK


def test_memory_for_unknown_clients_is_bounded() -> None:
    bench = IntakeBench()
    names = count()

    def greet(hellos: int) -> None:
        for _ in range(hellos):
            assert (
                bench.handle_fields(IntakeKind.HELLO, f"{next(names):250}", 1)[0].kind
                is IntakeKind.SYNC
            )

    bench.handle_fields(IntakeKind.RECORD, "p", 7, 1, "a")
    greet(1500)
    tracemalloc.start()
    try:
        greet(2000)
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
    assert bench.handle_fields(IntakeKind.RECORD, "p", 6, 2, "old")[0].kind is IntakeKind.FENCED, (
        "p has records"
    )


def test_kept_sessions_of_producers_with_records_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("driftline.deploy.roles.intake.ACTIVE_PRODUCERS_MAX", 100)
    bench = IntakeBench()
    names = [f"p{number}" for number in range(110)]
    for name in names:
        bench.handle_fields(IntakeKind.RECORD, name, 2, 1, "a")
        bench.handle_fields(IntakeKind.HELLO, name, 2)
    assert len(bench.intake._producers_with_records) == 100
    assert bench.handle_fields(IntakeKind.RECORD, names[0], 2, 1, "a") == [
        IntakeReply(IntakeKind.ACK, 2, 1)
    ]
    assert len(bench.log.all_written) == len(names)


def test_producers_beyond_the_limit_are_rejected_with_a_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = IntakeBench(producers_max=3)
    for name in "pqr":
        assert bench.handle_fields(IntakeKind.RECORD, name, 1, 1, "a") == [
            IntakeReply(IntakeKind.ACK, 1, 1)
        ]
    for _ in range(100):
        ((kind, _, _, _, number, reason),) = bench.handle_fields(IntakeKind.RECORD, "s", 1, 1, "a")
        assert (kind, number) == (IntakeKind.REFUSED, 0)
        assert "use the id of one of them" in reason
    assert bench.handle_fields(IntakeKind.RECORD, "p", 1, 2, "b") == [
        IntakeReply(IntakeKind.ACK, 1, 2)
    ]
    (message,) = (text for text in caplog.messages if "refused a new producer" in text)
    assert "use the id of one of them" in message


def test_record_beyond_a_limit_is_rejected_before_it_is_stored() -> None:
    bench = IntakeBench()
    bench.handle_fields(IntakeKind.RECORD, "p", 1, 1, "a")
    deep = nested(RECORD_DEPTH_MAX + 1, "tuple")
    for _ in range(2):
        ((kind, _, acknowledged, _, number, reason),) = bench.handle_fields(
            IntakeKind.RECORD, "p", 1, 2, deep
        )
        assert (kind, acknowledged, number) == (IntakeKind.REFUSED, 1, 2)
        assert "more than 100 deep" in reason
    assert bench.handle_fields(IntakeKind.RECORD, "p", 1, 3, "c")[0].kind is IntakeKind.SYNC
    assert [entry.sequence for entry in bench.log.all_written] == [1]


def test_sequences_as_keys_are_rejected_before_a_dict_is_built() -> None:
    """A client can construct sequences with equal hashes."""
    record = [{(1, 2): None}]
    with pytest.raises(MalformedMessage, match="keys that are sequences"):
        decode_request(pack((MAGIC, IntakeKind.RECORD, "p", 1, 1, record)))
    plain = {1: 2, 2.5: 3, b"4": 5, None: 6, "7": 8}
    assert decode_request(pack((MAGIC, IntakeKind.RECORD, "p", 1, 1, plain)))[-1] == plain
