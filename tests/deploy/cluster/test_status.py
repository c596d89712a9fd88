"""Status of a flow, from the real reports of its roles; and the status table."""

from __future__ import annotations

from io import StringIO

import pytest
from msgspec.structs import replace
from rich.console import Console

from driftline.coordinator.registry import ClusterState
from driftline.deploy.cluster.records import AgentRecord, AgentRole, Submission
from driftline.deploy.cluster.status import ClusterStatus, FlowStatus, flow_status
from driftline.deploy.commands.status import as_table
from driftline.deploy.node.node import Node
from driftline.deploy.roles.event_time_status import OperatorEventTime, event_time_status
from driftline.engine.event_time import ENDED, NEVER, Status
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.aggregates import Count
from driftline.engine.operators.windows import Tumbling
from driftline.engine.state.managed import MapState
from driftline.engine.wire.messages import AskReport, StatusReport, decode
from tests.stepped_cluster import SteppedCluster

SUBMITTED = Submission(
    "sums", "flow.py", "/out", 2, ("a-host-node", "b-host-node"), ("c-host-front",), "exactly-once",
    "speculative", 1.0, False, "identity", "", "lineage", 1, "run", 128,
)  # fmt: skip
AGENTS = [
    AgentRecord("a-host-node", (AgentRole.NODE,), "a-host", 4),
    AgentRecord("b-host-node", (AgentRole.NODE,), "b-host", 4),
    AgentRecord("c-host-front", (AgentRole.FRONT,), "c-host", 4),
    AgentRecord("a-host-master", (AgentRole.MASTER,), "a-host", 0),
]
BEGUN = ClusterState("identity", last_session=1)


def cluster() -> SteppedCluster:
    """Create a run with large changes and outputs, and a small in-flight window."""
    flow = Flow("sums")
    places = MapState[str, int]("places")

    def put(number: int, places: MapState[str, int]) -> str:
        for place in range(20):
            places[f"{number} {place}".rjust(50)] = number
        return f"{number}".rjust(100)

    flow.source("numbers").key_by(lambda number: number % 5).scan(put, places).sink()
    inputs: list[list[tuple[int, object]]] = [[(time, time) for time in range(1, 251)]]
    return SteppedCluster(flow, inputs, window=6, waiting_bytes=4000, interval=0.3)


def status_in(cluster: SteppedCluster) -> FlowStatus:
    """Return the status that `driftline status` computes from the answers of all roles."""
    reports = reports_in(cluster, "master", "node-0", "node-1", "front-0")
    return flow_status(SUBMITTED, ClusterState("identity"), reports, AGENTS)


def table_lines(flow: FlowStatus) -> list[str]:
    """Return the lines of the status table on a console of 100 columns."""
    console = Console(width=100, file=StringIO())
    with console.capture() as capture:
        console.print(as_table(ClusterStatus(tuple(AGENTS), (flow,))))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_status_shows_back_pressure_from_a_hung_consumer() -> None:
    made = cluster()
    made.run(made.has(20))
    assert status_in(cluster()).snapshot_age_s is None, "there is no snapshot yet"
    made.run(lambda: made.master.coordinator.snapshots.committed > 0)
    before = status_in(made)
    assert before.snapshot_age_s is not None
    assert before.snapshot_age_s < 1
    assert (before.state, before.obstacles, before.rescaling) == ("running", (), "")
    assert before.inputs[0].figures["records"] >= 20
    assert before.inputs[0].agent == "c-host-front"
    made.silent.add("consumer")
    for _ in range(2000):
        made.step()
    flow = status_in(made)
    assert {node.state for node in flow.nodes} == {"waiting for the consumer"}
    full = "front-0 is at its maximum of 6 records in flight"
    assert flow.held_back == (full,)
    assert f"  {full}" in table_lines(flow)
    assert flow.snapshot_age_s is not None
    assert flow.snapshot_age_s > 5, "the age of a snapshot counts from its delivered frontier"
    made.silent.clear()
    made.run(made.has(240), 100_000)
    made.run(lambda: not status_in(made).held_back, 100_000)


def reports_in(cluster: SteppedCluster, *names: str) -> dict[str, StatusReport]:
    """Ask these roles for their status reports."""
    reports = {}
    for name in names:
        party = cluster.parties[name]
        party.handle("watch-status", AskReport("somewhere"))
        [data] = [data for to, data in party.outbox if to == "watch-status"]
        party.outbox.clear()
        _, report = decode(data)
        assert isinstance(report, StatusReport)
        reports[name] = report
    return reports


def test_status_without_a_master_says_no_master_answers() -> None:
    begun = flow_status(SUBMITTED, BEGUN, {}, AGENTS)
    assert (begun.state, begun.frontier) == ("no master answers", None)
    new = flow_status(SUBMITTED, ClusterState("identity"), {}, AGENTS)
    assert new.state == "starting: no master answers yet"


def nodes(cluster: SteppedCluster) -> list[Node]:
    return [party for party in cluster.parties.values() if isinstance(party, Node)]


@pytest.mark.parametrize("age_s", [None, 7.4])
def test_status_table_fits_in_100_columns(age_s: float | None) -> None:
    made = cluster()
    made.run(made.has(100))
    for node in nodes(made):
        node.more_figures = lambda: {"outputs": 77}
    flow = replace(
        status_in(made),
        last_snapshot={"number": 12, "time": 34},
        snapshot_age_s=age_s,
        obstacles=("node-1 cannot write its snapshot: No space left on device",),
        rescaling="3 nodes are to follow: they copy the state",
        refused="there are 2 slots",
        recoveries=2,
    )
    lines = table_lines(flow)
    assert lines[0] == "sums: running"
    ago = " (7 s ago)" if age_s is not None else ""
    assert lines[1].endswith(f"snapshot 12{ago}")
    assert "recoveries 2" in lines[1]
    for text in (*flow.obstacles, flow.rescaling, flow.refused):
        assert f"  {text}" in lines
    assert any(line.split()[-3:] == ["its", "start", "undelivered"] for line in lines)
    cells = {line.split()[0]: line.split()[1:] for line in lines if line.strip()}
    assert cells["node-0"][:5] == ["a-host-node", "0-63", "running", "77", "outputs"]
    records = str(flow.inputs[0].figures["records"])
    assert cells["front-0"][:4] == ["c-host-front", "reading", records, "records"]


def test_status_names_the_source_that_holds_back_an_operator() -> None:
    flow = Flow("sums")
    clicks, views = (flow.source(name, event_time="at") for name in ("clicks", "views"))
    both = clicks.union(views).key_by("at").window(Tumbling("1s"))
    both.aggregate(name="per second", n=Count()).sink()
    inputs: list[list[tuple[int, object]]] = [
        [(time, {"at": 1_700_000_000 + time}) for time in range(1, 400, 2)],
        [(time, {"at": 1_700_000_000}) for time in range(2, 400, 2)],
    ]
    made = SteppedCluster(flow, inputs)
    made.run(made.has(0))
    for _ in range(6000):
        made.step()
    status = flow_status(SUBMITTED, BEGUN, reports_in(made, "master", "node-0", "node-1"), AGENTS)
    assert status.event_time is not None
    clicks_now, views_now = status.event_time.sources
    assert clicks_now.watermark is not None
    assert clicks_now.watermark > "2023-11-14T22:13:20Z"
    assert (views_now.watermark, views_now.state) == ("2023-11-14T22:13:20Z", "active")
    assert views_now.unmoved_s > clicks_now.unmoved_s
    held = OperatorEventTime("per second", "2023-11-14T22:13:20Z", "views")
    assert status.event_time.operators == (held,)
    assert "  per second    2023-11-14T22:13:20Z    views" in table_lines(status)


def test_event_time_is_that_of_the_slowest_node() -> None:
    def report(watermark: int, status: Status, unmoved_ms: int) -> StatusReport:
        sources = (("clicks", watermark, int(status), unmoved_ms),)
        by = "clicks" if status is Status.ACTIVE else ""
        operators = (("count", watermark, by),)
        return StatusReport((), "running", "", (), sources=sources, operators=operators)

    ended = report(ENDED, Status.ENDED, 10)
    found = [
        str(event_time_status(reports))
        for reports in (
            [report(NEVER, Status.ACTIVE, 4000), ended],
            [ended, report(1_500_000, Status.ACTIVE, 0)],
            [report(1_500_000, Status.IDLE, 0)],
            [ended],
            [StatusReport((), "running", "", ())],
        )
    ]
    assert found == [
        "no watermark yet (held back by clicks, unmoved for 4 s)",
        "watermark 1970-01-01T00:00:01.500000Z (held back by clicks, unmoved for 0 s)",
        "watermark 1970-01-01T00:00:01.500000Z",
        "all sources have ended",
        "None",
    ]
