"""Makes the shards of the view of an index, each in a process of its own."""

from __future__ import annotations

from pathlib import Path

from driftline.index.searcher.searcher import Searcher
from driftline.index.serving.definition import schema_in
from driftline.serve.hosting.config import Place


def make(place: Place) -> Searcher:
    """A shard of the view."""
    schema = schema_in(Path(place.options["state"]))
    return Searcher(schema, place.directory, place.shard, place.shards)
