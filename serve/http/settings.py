"""What can be set of the HTTP server of a service."""

from __future__ import annotations

from dataclasses import dataclass

from driftline.serve.http.access import Access


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of what clients can do; `access`: who may do what, None: everybody may do all."""

    access: Access | None = None
    body_bytes_max: int = 8 << 20
    """Of the body of a request, and of a line of a bulk. A text takes more bytes in JSON."""
    within_s: float = 10.0
    """So long a read waits for its T and for its answer."""
    idle_s: float = 60.0
    """So long a client may take for a body, and a second for each 16 KiB of it; for the next bytes
    of a bulk; or for reading the next of what it is sent."""
    heartbeat_s: float = 5.0
    """So often a stream without events says how far it is."""
    requests_max: int = 256
    """At work at one time, without streams: so many that have a body, so many that have none, and
    so many that are about the service itself."""
    streams_max: int = 128
    """Streams of events at one time."""
    bulks_max: int = 64
    """Bodies at one time that are taken while they come."""
    unread_bytes_max: int = 256 << 20
    """Of large answers that clients have not read yet."""
    requests_per_s: float = 0.0
    """Of one client; 0: any number. It may save up those of a second."""
    window: int = 256
    """Writes of one bulk that are under way."""
    retry_s: float = 1.0
    """After so long a client that was refused may try again."""
