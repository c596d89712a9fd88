"""A plan cuts a flow at its shuffles: ports, stages, feeders."""

from typing import Any

from driftline.engine.flow.flow import Flow, Stream
from driftline.engine.flow.plan import Plan, plan
from driftline.engine.state.managed import ListState, ValueState


def keyed(stream: Stream[Any], name: str) -> Stream[Any]:
    return stream.key_by(0).scan(lambda *_: 1, ValueState("s"), name=name)


def ports(made: Plan) -> dict[str, tuple[int, set[str], int | None]]:
    """Name -> (stage, names of feeders, front)."""
    names = {port.number: port.vertex.name for port in made.ports}
    return {
        port.vertex.name: (port.stage, {names[feeder] for feeder in port.feeders}, port.front)
        for port in made.ports
    }


def test_a_flow_without_a_shuffle_has_one_stage() -> None:
    flow = Flow("plain")
    flow.source("in").map(str).filter(len).sink()
    made = plan(flow)
    assert made.stages == 1
    assert made.fronts == 1
    assert ports(made) == {"in": (0, set(), 0)}


def test_each_shuffle_is_a_port_and_begins_a_stage() -> None:
    flow = Flow("three")
    stream: Stream[Any] = flow.source("in")
    for name in ("one", "two", "three"):
        stream = keyed(stream.map(str), name)
    stream.sink()
    made = plan(flow)
    assert made.stages == 4
    assert ports(made) == {
        "in": (0, set(), 0),
        "one": (1, {"in"}, None),
        "two": (2, {"one"}, None),
        "three": (3, {"two"}, None),
    }


def test_a_port_is_a_stage_after_the_longest_way_to_it() -> None:
    flow = Flow("shortcut")
    source = flow.source("in")
    one = keyed(source, "one")
    two = keyed(one, "two")
    keyed(source.union(two, flow.source("other")), "last").sink()
    found = ports(plan(flow))
    assert found["last"] == (3, {"in", "two", "other"}, None)
    assert found["other"] == (0, set(), 1)


def test_frames_are_made_only_in_earlier_stages() -> None:
    flow = Flow("diamond")
    source = flow.source("in")
    one, two = keyed(source, "one"), keyed(source.map(str), "two")
    joined = one.union(two)
    keyed(joined, "three").sink("a")
    keyed(keyed(joined, "four"), "five").union(one.map(str)).sink("b")
    made = plan(flow)
    for port in made.ports:
        assert all(made.ports[feeder].stage < port.stage for feeder in port.feeders)
        assert len(set(port.feeders)) == len(port.feeders)
    assert ports(made)["three"] == (2, {"one", "two"}, None)
    assert ports(made)["five"] == (3, {"four"}, None)
    assert made.stages == 4


def test_a_chain_that_reaches_a_port_on_two_ways_feeds_it_once() -> None:
    flow = Flow("two ways")
    source = flow.source("in")
    keyed(source.map(str).union(source.filter(str), source), "op").sink()
    assert plan(flow).ports[1].feeders == (0,)


def test_sources_are_the_first_ports_and_their_fronts_have_their_numbers() -> None:
    flow = Flow("two sources")
    one = keyed(flow.source("a"), "op")
    one.union(flow.source("b").map(str)).sink()
    made = plan(flow)
    assert [(port.vertex.name, port.front) for port in made.ports] == [
        ("a", 0),
        ("b", 1),
        ("op", None),
    ]
    assert made.port_of(flow.vertices[1].number).vertex.name == "op"


def flow_with(**changes: object) -> Flow:
    about: dict[str, object] = {
        "flow": "name",
        "groups": 128,
        "operator": "op",
        "state": ValueState("s"),
        "more": False,
        **changes,
    }
    flow = Flow(str(about["flow"]), groups=int(str(about["groups"])))
    stream: Stream[Any] = flow.source("in")
    if about["more"]:
        stream = stream.map(str)
    state = about["state"]
    assert isinstance(state, (ValueState, ListState))
    stream.key_by(0).scan(lambda *_: 1, state, name=str(about["operator"])).sink()
    return flow


def test_flows_whose_state_does_not_fit_each_other_are_told_apart() -> None:
    flows = [
        flow_with(),
        flow_with(flow="other"),
        flow_with(groups=64),
        flow_with(operator="other"),
        flow_with(state=ValueState("other")),
        flow_with(state=ListState("s")),
        flow_with(more=True),
    ]
    identities = [plan(flow).identity() for flow in flows]
    assert len(set(identities)) == len(flows)
    assert plan(flow_with()).identity() == identities[0]
