"""Client of an index service: search, reads, writes and event streams over HTTP.

with IndexClient("http://127.0.0.1:8080", session=True) as index:
    index.put("1", {"title": "Tea", "text": "Tea is made of leaves."})
    for hit in index.search("tea").hits:
        print(hit.id, hit.snippet)

This package requires the extra `client`: pip install 'driftline[client]'. `IndexProducer` in
`index.client.producer` writes over ZeroMQ.
"""

from driftline.index.client.async_client import AsyncEvents, AsyncIndexClient
from driftline.index.client.batches import Delete, Line
from driftline.index.client.client import EventReader, IndexClient
from driftline.index.client.errors import (
    Busy,
    Conflict,
    Invalid,
    NoLongerRetained,
    NotAllowed,
    NotFound,
    QueryRefused,
    ServiceError,
    ServiceUnavailable,
    StorageFull,
    TooCostly,
    TooLarge,
)
from driftline.index.client.events import BEGINNING
from driftline.index.client.results import FailedLine
from driftline.index.documents.answers import (
    Change,
    CountAnswer,
    Document,
    Explained,
    FacetValue,
    Hit,
    SearchResult,
    Watch,
    WatchEvent,
    Written,
)

__all__ = [
    "BEGINNING",
    "AsyncEvents",
    "AsyncIndexClient",
    "Busy",
    "Change",
    "Conflict",
    "CountAnswer",
    "Delete",
    "Document",
    "EventReader",
    "Explained",
    "FacetValue",
    "FailedLine",
    "Hit",
    "IndexClient",
    "Invalid",
    "Line",
    "NoLongerRetained",
    "NotAllowed",
    "NotFound",
    "QueryRefused",
    "SearchResult",
    "ServiceError",
    "ServiceUnavailable",
    "StorageFull",
    "TooCostly",
    "TooLarge",
    "Watch",
    "WatchEvent",
    "Written",
]
