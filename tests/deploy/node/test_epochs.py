"""Epochs: what their outputs wait for is as short as it can be."""

from __future__ import annotations

from driftline.deploy.node.components import Components
from driftline.deploy.simulation.world.disks import MemoryKeyValue
from driftline.engine.flow.plan import plan
from driftline.engine.labels import Label
from driftline.engine.policy import policy
from driftline.engine.snapshots.jobs import StoreSnapshot
from driftline.engine.snapshots.store import PartStore
from driftline.engine.wire.messages import Marker
from driftline.index.flow import inverted_index


def test_the_part_that_outputs_wait_for_does_not_wait_for_a_long_merge() -> None:
    flow_plan = plan(inverted_index())
    ids = iter(range(1, 100))
    components = Components(flow_plan, policy("two-phase"), 0, (0,), lambda: next(ids))
    assembly = components.assembly()
    store = PartStore(MemoryKeyValue("store"), flow_plan.flow, merge_at=4, rows_at_once=1)
    for number in range(1, 9):
        assembly.mark("front-0", Marker(0, 0, number))
        for port in flow_plan.ports:
            if port.vertex.keyed:
                assembly.enter(port.number, [])
                labels: list[Label] = [(number, 0, child) for child in range(20)]
                values: list[object] = [
                    (f"w{number}-{child}", f"d{number}", (1,)) for child in range(20)
                ]
                assembly.gates[port.number].push(labels, values, None)
            assert assembly.ends_epoch(port.number)
            assembly.end_epoch(port.number)
        meta = assembly.meta(number)
        capture = assembly.capture(number)
        while capture.step():
            pass
        store.carry_out(StoreSnapshot(number, capture.segments, meta))
    job = assembly.commit(8, 7)
    steps = 1
    while store.carry_out(job):
        steps += 1
    assert steps > 20, "between two steps another part can be written"
