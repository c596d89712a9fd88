"""As of which T a read is."""

from __future__ import annotations

from driftline.serve.errors import Refused
from driftline.serve.gateway.backend import Backend
from driftline.serve.http.content.parameters import AFTER, AT
from driftline.serve.http.operations import Call


def as_of(backend: Backend, call: Call) -> int:
    """The T that a read asks for; by default the newest that the service has.

    So all shards answer as of one T, and each waits until it has that. Raises Refused.
    """
    at, after = call[AT], call[AFTER]
    if at is None:
        return max(now(backend), after)
    if at < after:
        raise Refused("invalid", "at is before after: as of at, that write cannot be seen")
    return at


def now(backend: Backend) -> int:
    """The newest T that the service has. Raises Refused while it starts: it may have later ones."""
    if not backend.started:
        raise Refused("unavailable", "the service is starting: ask again a little later")
    return backend.time
