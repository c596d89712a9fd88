"""The view of an index, whose shards are made each in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from driftline.index.serving.definition import VIEW, schema_in
from driftline.serve.hosting.config import Place, ViewSpec

if TYPE_CHECKING:
    from driftline.index.searcher.searcher import Searcher


def views_of(state: Path, searchers: int) -> tuple[ViewSpec, ...]:
    """The view of an index, in so many shards."""
    return (ViewSpec(VIEW, f"{__name__}:make", searchers, {"state": str(state)}),)


def make(place: Place) -> Searcher:
    """A shard of the view."""
    from driftline.index.searcher.searcher import Searcher  # the gateway has no need of it

    schema = schema_in(Path(place.options["state"]))
    return Searcher(schema, place.directory, place.shard, place.shards)
