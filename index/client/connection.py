"""How a service is reached: what both clients are made with, and what is said of a connection that
fails."""

from __future__ import annotations

from dataclasses import dataclass
from ssl import SSLContext

import httpx

from driftline.index.client.errors import ServiceError, Unavailable, error_of
from driftline.index.client.results import loads

URL = "http://127.0.0.1:8080"

CONNECT_S, SILENCE_S = 5.0, 30.0
"""So long a connection may take to be made; and so long a stream may be silent: the service gives a
sign of life every few seconds."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How a service is reached; `timeout_s`: so long one attempt may be silent; `retry_s`: so long
    a request is tried again; `verify`: as in httpx, for a certificate of one's own authority."""

    url: str
    token: str | None
    timeout_s: float
    retry_s: float
    verify: SSLContext | bool

    def __post_init__(self) -> None:
        """Raises Unavailable for what is no address."""
        if httpx.URL(self.url).scheme not in ("http", "https") or not httpx.URL(self.url).host:
            text = f"{self.url!r} is no address of a service: that is http://HOST:PORT, or https://"
            raise Unavailable("address", text)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    @property
    def timeout(self) -> httpx.Timeout:
        """The time limits of a request."""
        return httpx.Timeout(self.timeout_s, connect=min(CONNECT_S, self.timeout_s))

    @property
    def timeout_of_streams(self) -> httpx.Timeout:
        """The time limits of a stream."""
        return httpx.Timeout(SILENCE_S, connect=min(CONNECT_S, self.timeout_s))

    def broken(self, error: httpx.TransportError) -> Unavailable:
        """What is said of a connection that fails."""
        what = str(error) or type(error).__name__
        return Unavailable("unavailable", f"{self.url} cannot be reached: {what}")


def answer(response: httpx.Response) -> object:
    """The JSON of an answer. Raises ServiceError if it is a refusal."""
    if response.status_code != httpx.codes.OK:
        raise refusal(response)
    return loads(response.content)


def refusal(response: httpx.Response) -> ServiceError:
    """The error that an answer is. Precondition: it was read."""
    retry_after = response.headers.get("retry-after")
    return error_of(response.status_code, response.content, retry_after)
