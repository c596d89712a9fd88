"""Connections to a service, asynchronous and blocking, and the retry policy."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from random import uniform
from ssl import SSLCertVerificationError, SSLContext, SSLError
from typing import Protocol, TypeVar

import httpx

from driftline.index.client.errors import (
    Busy,
    Invalid,
    ServiceError,
    ServiceUnavailable,
    error_of_response,
)

URL = "http://127.0.0.1:8080"
"""Default address of a service."""

CONNECT_TIMEOUT_S, STREAM_TIMEOUT_S = 5.0, 30.0
"""Connect timeout, and read timeout of streams; event streams have heartbeats every few seconds."""

PERMANENT_CODES = "address", "answer", "certificate"
"""Codes of permanent errors, which are not retried."""

FIRST_PAUSE_S, PAUSE_S_MAX = 0.05, 2.0
"""Pause before the first retry, and the longest pause; the pause doubles with each retry."""

Params = Mapping[str, str | Sequence[str]]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Settings of a connection to a service, as described at `IndexClient`."""

    url: str
    token: str | None = field(repr=False)
    timeout_s: float
    retry_s: float
    verify: SSLContext | bool

    def __post_init__(self) -> None:
        """Validate the settings. Raises ServiceUnavailable for an invalid address, else Invalid."""
        if not _is_address(self.url):
            text = (
                f"{self.url!r} is not an address of a service; use http://HOST:PORT or https://HOST"
            )
            raise ServiceUnavailable("address", text)
        if self.token is not None and not _is_token(self.token):
            raise Invalid(
                "invalid",
                "this token cannot be sent in a header: it must be a text of ASCII letters, digits "
                "and punctuation, without spaces or line ends; for a token read from a file use "
                ".strip()",
                {"parameter": "token"},
            )
        if not (_is_duration(self.timeout_s) and self.timeout_s > 0):
            raise _invalid("timeout_s", "a number of seconds above 0", self.timeout_s)
        if not _is_duration(self.retry_s):
            raise _invalid("retry_s", "a number of seconds, 0 for no retry", self.retry_s)
        if not isinstance(self.verify, bool | SSLContext):
            raise _invalid(
                "verify",
                "True, False or an SSLContext: ssl.create_default_context(cafile=FILE)",
                self.verify,
            )

    @property
    def headers(self) -> dict[str, str]:
        """Headers of each request."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    @property
    def timeout(self) -> httpx.Timeout:
        """Timeouts of a request."""
        return httpx.Timeout(self.timeout_s, connect=min(CONNECT_TIMEOUT_S, self.timeout_s))

    @property
    def stream_timeout(self) -> httpx.Timeout:
        """Timeouts of a stream."""
        return httpx.Timeout(STREAM_TIMEOUT_S, connect=min(CONNECT_TIMEOUT_S, self.timeout_s))

    def to_service_error(self, error: httpx.TransportError, is_closed: bool) -> ServiceError:
        """Convert a transport error to a ServiceError. Its code shows whether a retry is useless.

        `is_closed`: whether the client was closed during the request.
        """
        if is_closed:
            return closed()
        code, problem = "unavailable", str(error) or type(error).__name__
        match _tls_cause(error):
            case SSLCertVerificationError() as tls_error:
                code = "certificate"
                problem = (
                    f"its certificate cannot be verified ({tls_error.verify_message}); if a "
                    "private authority issued it, use "
                    "verify=ssl.create_default_context(cafile=FILE)"
                )
            case SSLError(reason="WRONG_VERSION_NUMBER"):
                code, problem = "address", "it does not use TLS: its address begins with http://"
            case None if isinstance(error, httpx.RemoteProtocolError) and self._is_plain:
                problem += " If the service uses TLS, its address begins with https://"
        return ServiceUnavailable(code, f"{self.url} cannot be reached: {problem}")

    @property
    def _is_plain(self) -> bool:
        return httpx.URL(self.url).scheme == "http"


def _is_address(url: object) -> bool:
    if not isinstance(url, str):
        return False
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host)


def _is_token(token: object) -> bool:
    """Return whether a header can contain the token."""
    return isinstance(token, str) and re.fullmatch(r"[!-~]+", token) is not None


def _is_duration(seconds: object) -> bool:
    return isinstance(seconds, int | float) and 0 <= seconds < inf


def _invalid(name: str, allowed: str, value: object) -> Invalid:
    return Invalid("invalid", f"{name} must be {allowed}, not {value!r}", {"parameter": name})


def _tls_cause(error: BaseException | None) -> SSLError | None:
    """Return the first TLS error among an error and its causes, if any."""
    while error is not None and not isinstance(error, SSLError):
        error = error.__cause__ or error.__context__
    return error


def closed() -> ServiceError:
    """Return the error for a closed client."""
    return ServiceError("closed", "this client was closed; create a new one")


class Connection(Protocol):
    """HTTP operations of a client.

    `send` and `stream` raise httpx.TransportError, and ServiceError if the client is closed.
    """

    settings: ConnectionSettings

    async def send(
        self, method: str, path: str, params: Params, content: bytes | None
    ) -> httpx.Response:
        """Send a request and return its answer, which may have any status."""

    def stream(
        self, method: str, path: str, params: Params, content: bytes | None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Return a context manager that sends a request on entry.

        Its value yields the parts of the answer as they arrive. Raises ServiceError unless the
        status is 200.
        """

    async def sleep(self, seconds: float) -> None:
        """Sleep for some seconds."""

    async def close(self) -> None:
        """Close all connections."""

    def to_service_error(self, error: httpx.TransportError) -> ServiceError:
        """Convert a transport error to a ServiceError."""


class AsyncConnection:
    """Asyncio connection."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self._http = httpx.AsyncClient(
            base_url=settings.url,
            headers=settings.headers,
            timeout=settings.timeout,
            verify=settings.verify,
        )

    async def send(
        self, method: str, path: str, params: Params, content: bytes | None
    ) -> httpx.Response:
        _check_open(self._http)
        return await self._http.request(method, path, params=params, content=content)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, params: Params, content: bytes | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        _check_open(self._http)
        timeout = self.settings.stream_timeout
        async with self._http.stream(
            method, path, params=params, content=content, timeout=timeout
        ) as response:
            if response.status_code != httpx.codes.OK:
                await response.aread()
                raise to_service_error(response)
            yield response.aiter_bytes()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._http.aclose()

    def to_service_error(self, error: httpx.TransportError) -> ServiceError:
        return self.settings.to_service_error(error, self._http.is_closed)


class BlockingConnection:
    """Blocking connection: its coroutines never suspend, so that `run_blocking` can run them."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self._http = httpx.Client(
            base_url=settings.url,
            headers=settings.headers,
            timeout=settings.timeout,
            verify=settings.verify,
        )

    async def send(
        self, method: str, path: str, params: Params, content: bytes | None
    ) -> httpx.Response:
        _check_open(self._http)
        return self._http.request(method, path, params=params, content=content)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, params: Params, content: bytes | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        _check_open(self._http)
        timeout = self.settings.stream_timeout
        with self._http.stream(
            method, path, params=params, content=content, timeout=timeout
        ) as response:
            if response.status_code != httpx.codes.OK:
                response.read()
                raise to_service_error(response)
            yield _as_async(response.iter_bytes())

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def close(self) -> None:
        self._http.close()

    def to_service_error(self, error: httpx.TransportError) -> ServiceError:
        return self.settings.to_service_error(error, self._http.is_closed)


def run_blocking(coroutine: Coroutine[object, None, T]) -> T:
    """Run a coroutine that never suspends, such as one over a `BlockingConnection`."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a coroutine over a blocking connection was suspended")


async def _as_async(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def _check_open(http: httpx.AsyncClient | httpx.Client) -> None:
    if http.is_closed:
        raise closed()


def content_of(response: httpx.Response) -> bytes:
    """Return the content of an answer. Raises ServiceError unless its status is 200."""
    if response.status_code != httpx.codes.OK:
        raise to_service_error(response)
    return response.content


def to_service_error(response: httpx.Response) -> ServiceError:
    """Return the error of an unsuccessful answer. Precondition: its content was read."""
    retry_after = response.headers.get("retry-after")
    return error_of_response(response.status_code, response.content, retry_after)


class Attempts:
    """Retry policy of one request.

    `retry_s`: seconds from the first attempt, or the last `reset`, within which each retry must
    begin; 0: no retry. `now`: monotonic time of the first attempt.
    """

    def __init__(self, retry_s: float, now: float) -> None:
        self._retry_s = retry_s
        self._retry_until = now + retry_s
        self._pause_s = FIRST_PAUSE_S

    def reset(self, now: float) -> None:
        """Restart the retry period after progress."""
        self._retry_until = now + self._retry_s
        self._pause_s = FIRST_PAUSE_S

    def pause_s(self, error: ServiceError, now: float) -> float:
        """Return the pause before the next attempt, at least the `retry_after_s` of the error.

        Raises `error` if it must not be retried, or if the retry period ends before the attempt.
        Pauses are randomised, so that many clients do not retry at the same moment.
        """
        if not isinstance(error, Busy | ServiceUnavailable) or error.code in PERMANENT_CODES:
            raise error
        pause = max(uniform(0.5, 1.0) * self._pause_s, error.retry_after_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        if now + pause > self._retry_until:
            raise error
        return pause
