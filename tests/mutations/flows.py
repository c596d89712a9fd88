"""Flows with functions that break the rules."""

from __future__ import annotations

from itertools import count

from driftline.engine.flow.flow import Flow
from driftline.engine.state.managed import ValueState

_calls = count()


def _append(record: dict[str, object], seen: ValueState[str]) -> tuple[object, str]:
    joined = f"{seen.get('')}.{record['id']}/{next(_calls)}"
    seen.set(joined)
    return record["key"], joined


drifting = Flow("drifting")
drifting.source("records").key_by(lambda record: record["key"]).scan(
    _append, ValueState[str]("ids")
).sink()
