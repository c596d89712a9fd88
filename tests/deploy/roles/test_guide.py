"""The guide sends the master's address to all members on its host, and again when it changes."""

from __future__ import annotations

from driftline.deploy.roles.guide import REPEAT_EVERY_S, FindLeader, Guide
from driftline.engine.errors import Unavailable
from driftline.engine.wire.messages import Hello, MasterAt, decode, encode


class GuideBench:
    def __init__(self) -> None:
        self.guide = Guide()
        self.now = 0.0
        self.pass_time(0.0)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.guide.now = self.now
        self.guide.tick(self.now)

    def complete_lookup(self, result: object) -> None:
        [job] = self.guide.jobs
        assert isinstance(job, FindLeader)
        self.guide.jobs.clear()
        self.guide.on_job_done(job, result)

    def hello(self, name: str) -> None:
        self.guide.receive(encode((name, 0, 0), Hello(f"at {name}", f"{name}#1", 0, 0)))

    def sent_addresses(self) -> dict[str, str]:
        found = {}
        for to, data in self.guide.outbox:
            header, message = decode(data)
            assert header.sender == "agent"
            assert isinstance(message, MasterAt)
            found[to] = message.address
        self.guide.outbox.clear()
        return found


def test_member_learns_master_address_once_it_is_known() -> None:
    bench = GuideBench()
    bench.hello("node-0")
    assert bench.sent_addresses() == {}
    bench.complete_lookup(("m#1", "at m#1"))
    assert bench.sent_addresses() == {"node-0": "at m#1"}
    bench.hello("front-0")
    assert bench.sent_addresses() == {"front-0": "at m#1"}
    assert bench.guide.addresses["front-0"] == "at front-0"


def test_master_address_is_resent_every_second_and_on_change() -> None:
    bench = GuideBench()
    bench.complete_lookup(("m#1", "at m#1"))
    bench.hello("node-0")
    bench.sent_addresses()
    bench.pass_time(REPEAT_EVERY_S)
    assert bench.sent_addresses() == {"node-0": "at m#1"}
    bench.guide.on_queue_changed()
    bench.pass_time(0.0)
    bench.complete_lookup(("m#2", "at m#2"))
    assert bench.sent_addresses() == {"node-0": "at m#2"}


def test_guide_sends_last_address_without_registry_and_none_without_master() -> None:
    bench = GuideBench()
    bench.complete_lookup(("m#1", "at m#1"))
    bench.hello("node-0")
    bench.sent_addresses()
    bench.guide.on_queue_changed()
    bench.pass_time(0.0)
    bench.complete_lookup(Unavailable("no server"))
    assert bench.sent_addresses() == {}
    assert "no server" in bench.guide.obstacle
    bench.pass_time(REPEAT_EVERY_S)
    assert bench.sent_addresses() == {"node-0": "at m#1"}
    bench.complete_lookup(("", ""))
    bench.pass_time(REPEAT_EVERY_S)
    assert bench.sent_addresses() == {}
