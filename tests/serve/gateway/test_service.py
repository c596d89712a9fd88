"""The last outputs: few, or few large ones, and all of a time or none."""

from __future__ import annotations

from driftline.engine.wire.bundles import Item
from driftline.serve.gateway.service import RECENT_BYTES_MAX, RECENT_MAX, RecentOutputs


def test_recent_outputs_hold_all_or_none_of_a_time() -> None:
    for size, kept in ((1, RECENT_MAX), (RECENT_BYTES_MAX // 10, 10)):
        recent = RecentOutputs(0)
        value = "key", "a" * (size - 3)
        times = [2 * n for n in range(3 * kept // 2)]
        for time in times:
            recent.add([Item((time, n), 0, value) for n in (0, 1)])
        found = [time for time in times if recent.at(time) is not None]
        assert found == times[-(kept // 2) :]
        assert all(len(recent.at(time) or ()) == 2 for time in found)
        assert recent.at(times[-1] - 1) == []
