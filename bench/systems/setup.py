"""The setup: the settings that all rows of a benchmark share; only the case differs."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.loops import System
from driftline.bench.systems.cases import REAL_TIME, Case
from driftline.bench.systems.durable_floor import DurableFloor
from driftline.bench.systems.engine import Engine
from driftline.bench.systems.floor import Floor
from driftline.bench.systems.microbatch import MicroBatch


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of all rows."""

    documents: Documents
    nodes: int
    ordering: str

    def start(self, case: Case) -> AbstractContextManager[System]:
        """A new system for a case; entering starts and warms it up.

        Entering raises Refused if Spark cannot run the case.
        """
        if case.is_floor:
            kind = DurableFloor if case.durable else Floor
            return kind(self.documents, self.nodes)
        if case.micro_batch:
            return MicroBatch(self.documents, self.nodes, real_time=case.policy == REAL_TIME)
        return Engine(
            self.documents,
            case.policy,
            nodes=self.nodes,
            ordering=self.ordering,
            checkpoint_s=(case.checkpoint_ms or 1000) / 1000,
            durable=case.durable,
            transport=case.transport,
        )


def patience_s(case: Case) -> float:
    """Seconds without an output after which a run is over: a batch takes seconds under load."""
    return 60.0 if case.micro_batch else 10.0
