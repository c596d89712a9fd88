"""Sources that read files in the usual formats and Wikimedia dumps, or generate text.

from driftline.engine.sources.source import strict

source = open_source("talks.jsonl.gz", text_field="body")
for time, document in strict(source.read(1)):
    ...
"""

from driftline.connectors.files.files import FileSource, open_source
from driftline.connectors.files.generated import ZipfSource, find_sample

__all__ = ["FileSource", "ZipfSource", "find_sample", "open_source"]
