"""Sources of records with times: the contract, sources in memory, and checks of records.

Connectors, in packages above this one, contain the sources of files and of live inputs.
"""

from driftline.engine.sources.cached import CachedSource
from driftline.engine.sources.memory import ListSource, Repeated
from driftline.engine.sources.source import (
    BadRecord,
    QueueSource,
    RetainedSource,
    Source,
    lenient,
    strict,
)

__all__ = [
    "BadRecord",
    "CachedSource",
    "ListSource",
    "QueueSource",
    "Repeated",
    "RetainedSource",
    "Source",
    "lenient",
    "strict",
]
