"""`driftline bench watches` counts the events that there have to be."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from driftline.bench.experiments.watches import Watching, stream
from driftline.bench.measuring.corpus import load_documents
from driftline.bench.measuring.stored import PROBED, SCHEMA, Stored, as_documents
from driftline.index.documents.schema import load_schema
from tests.index.truth.model import SequentialIndex

WATCHES, DOCUMENTS = 400, 60


def test_events_are_those_of_a_sequential_index(tmp_path: Path) -> None:
    schema, documents = tmp_path / "schema.toml", load_documents(DOCUMENTS)
    schema.write_text(SCHEMA)
    index = SequentialIndex(load_schema(schema).collections["documents"])
    for label, each in enumerate(put := as_documents(documents)):
        index.write(label, str(each["id"]), {key: x for key, x in each.items() if key != "id"})
    queries = Stored(documents, seed=0).draw(WATCHES)
    events = sum(len(index.search(query)) for query in [*queries, PROBED])
    streamed = stream(put, queries, nodes=1, searchers=2, console=Console(quiet=True))
    found = json.loads(json.dumps(Watching(1, 2, streamed, streamed).as_json()))["with"]
    assert found["events"] == events > WATCHES
    assert found["watches"] == WATCHES + 1
    assert found["documents_per_s"] > 0
