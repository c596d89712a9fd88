"""Sources give records with times: files of the usual formats, Wikimedia dumps, generated text.

source = open_source("talks.jsonl.gz", text_field="body")
for time, document in strict(source.read(1)):
    ...
"""

from driftline.engine.sources.cached import CachedSource
from driftline.engine.sources.files.files import FileSource, open_source
from driftline.engine.sources.memory import ListSource, Repeated
from driftline.engine.sources.source import BadRecord, QueueSource, RetainedSource, Source, strict
from driftline.engine.sources.texts.generated import ZipfSource, find_sample

__all__ = [
    "BadRecord",
    "CachedSource",
    "FileSource",
    "ListSource",
    "QueueSource",
    "Repeated",
    "RetainedSource",
    "Source",
    "ZipfSource",
    "find_sample",
    "open_source",
    "strict",
]
