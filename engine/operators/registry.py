"""The operators that a flow can have."""

from __future__ import annotations

from driftline.engine.operators.distinct import Distinct
from driftline.engine.operators.operator import Operator
from driftline.engine.operators.routing import Sink, Source, Union
from driftline.engine.operators.scan import Process, Scan
from driftline.engine.operators.stateless import Filter, FlatMap, Map

OPERATORS: tuple[type[Operator], ...] = (
    Source,
    Map,
    FlatMap,
    Filter,
    Union,
    Scan,
    Process,
    Distinct,
    Sink,
)
