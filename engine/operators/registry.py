"""Registry of the operators that a flow can have."""

from __future__ import annotations

from driftline.engine.operators.count_windows import CountWindowed
from driftline.engine.operators.iterate import Iterate
from driftline.engine.operators.joins import AsOfJoin, IntervalJoin, Lookup
from driftline.engine.operators.keyed_operators import (
    Distinct,
    DistinctInTime,
    Process,
    RunningTop,
    Scan,
)
from driftline.engine.operators.operator import Operator
from driftline.engine.operators.stateless import Filter, FlatMap, Map, Sink, SourceOperator, Union
from driftline.engine.operators.windowed import Late, Windowed

OPERATORS: tuple[type[Operator], ...] = (
    SourceOperator,
    Map,
    FlatMap,
    Filter,
    Union,
    Scan,
    Process,
    Iterate,
    Distinct,
    DistinctInTime,
    RunningTop,
    Windowed,
    CountWindowed,
    Late,
    IntervalJoin,
    AsOfJoin,
    Lookup,
    Sink,
)
"""Operator classes, one or more for each kind, in the order in which errors list the kinds. The
classes of `engine.operators.hopping` are left out: they have the kinds of `Windowed` and `Late`."""
