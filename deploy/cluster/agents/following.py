"""Following: what keeps elastic flows from having a node at each agent, told once per cause."""

from __future__ import annotations

from collections.abc import Mapping

from driftline.engine.events import Trouble


class Following:
    """Remembers what was told. Takes at each look which flows cannot follow the agents, and why."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """Flow -> why, as of the last look."""
        self._told: dict[str, Trouble] = {}

    def note(self, refused: Mapping[str, str], now: float) -> None:
        """Tell what is new, and what is over. `now`: seconds, monotonic."""
        for name, why in refused.items():
            if self.refused.get(name) != why:
                self._told[name] = Trouble("cannot-follow")
            self._told[name].failed(now, f"flow {name}: {why}", flow=name)
        for name in self._told.keys() - refused.keys():
            told = f"nothing keeps flow {name} from following the agents any more"
            self._told.pop(name).over(now, told, flow=name)
        self.refused = dict(refused)
