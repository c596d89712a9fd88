"""Plans: a flow is cut at its shuffles into ports, with stages and upstreams."""

from typing import Any

from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import Plan, make_plan
from driftline.engine.flow.streams import Stream
from driftline.engine.state.managed import ListState, ValueState


def keyed(stream: Stream[Any], name: str) -> Stream[Any]:
    return stream.key_by(0).scan(lambda *_: 1, ValueState("s"), name=name)


def ports(made: Plan) -> dict[str, tuple[int, set[str], int | None]]:
    """Return a map of names to (stage, names of upstreams, front)."""
    names = {port.number: port.vertex.name for port in made.ports}
    return {
        port.vertex.name: (port.stage, {names[upstream] for upstream in port.upstreams}, port.front)
        for port in made.ports
    }


def test_ports_receive_frames_only_from_earlier_stages() -> None:
    flow = Flow("diamond")
    source = flow.source("in")
    one, two = keyed(source, "one"), keyed(source.map(str), "two")
    joined = one.union(two)
    keyed(joined, "three").sink("a")
    keyed(keyed(joined, "four"), "five").union(one.map(str)).sink("b")
    made = make_plan(flow)
    for port in made.ports:
        assert all(made.ports[upstream].stage < port.stage for upstream in port.upstreams)
        assert len(set(port.upstreams)) == len(port.upstreams)
    assert made.fronts == 1
    assert ports(made)["in"] == (0, set(), 0)
    assert ports(made)["three"] == (2, {"one", "two"}, None)
    assert ports(made)["five"] == (3, {"four"}, None)
    assert made.stages == 4


def flow_with(
    flow: str = "name",
    groups: int = 128,
    operator: str = "op",
    state: ValueState[int] | ListState[int] = ValueState("s"),  # noqa: B008
    more: bool = False,
) -> Flow:
    made = Flow(flow, groups=groups)
    stream: Stream[Any] = made.source("in")
    if more:
        stream = stream.map(str)
    stream.key_by(0).scan(lambda *_: 1, state, name=operator).sink()
    return made


def test_flows_with_incompatible_state_have_different_identities() -> None:
    flows = [
        flow_with(),
        flow_with(flow="other"),
        flow_with(groups=64),
        flow_with(operator="other"),
        flow_with(state=ValueState("other")),
        flow_with(state=ListState("s")),
        flow_with(more=True),
    ]
    identities = [make_plan(flow).identity() for flow in flows]
    assert len(set(identities)) == len(flows)
    assert make_plan(flow_with()).identity() == identities[0]
