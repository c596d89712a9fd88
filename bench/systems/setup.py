"""The setup: what all rows of a benchmark have in common, so that only the case differs."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.loops import System
from driftline.bench.systems.cases import REAL_TIME, Case
from driftline.bench.systems.engine import Engine
from driftline.bench.systems.floor import Floor
from driftline.bench.systems.microbatch import MicroBatch


@dataclass(frozen=True, slots=True)
class Setup:
    """What all rows have in common."""

    documents: Documents
    nodes: int
    ordering: str

    def start(self, case: Case | None) -> AbstractContextManager[System]:
        """What is to be measured, fresh; entered, it is up and warm enough to be sent documents.

        Entering raises Refused where Spark cannot do the case.
        """
        if case is None:
            return Floor(self.documents, self.nodes)
        if case.micro_batch:
            return MicroBatch(self.documents, self.nodes, real_time=case.policy == REAL_TIME)
        return Engine(
            self.documents,
            case.policy,
            nodes=self.nodes,
            ordering=self.ordering,
            checkpoint_s=(case.checkpoint_ms or 1000) / 1000,
        )


def patience_s(case: Case | None) -> float:
    """How long nothing may arrive before a run is over: a batch takes seconds under load."""
    return 60.0 if case is not None and case.micro_batch else 10.0
