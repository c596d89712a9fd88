"""Access control: tokens with rights, stored as hashes.

The token file has a line for each token: a right, the SHA-256 of the token, and a name for people.
Blank lines and lines that begin with # are ignored.

    write 5f0c...e1 shop
    read  77aa...09 dashboard

A token is 32 random bytes, which cannot be guessed, so a fast hash suffices. The right "write"
includes "read".
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from math import inf
from pathlib import Path
from time import monotonic
from typing import Literal, get_args

from msgspec import Struct

from driftline.engine.errors import DriftlineError, NotPermitted
from driftline.engine.events import event_fields, log
from driftline.serve.errors import ApiError

TOKEN_FILE_POLL_S = 1.0
"""Shortest interval in seconds between two checks whether the token file has changed."""

Right = Literal["read", "write"]

_RIGHTS: tuple[Right, ...] = get_args(Right)
"""The rights in ascending order: each includes all previous ones."""


class Holder(Struct, frozen=True):
    """The holder of a token. `digest`: the SHA-256 of the token."""

    name: str
    right: Right
    digest: bytes

    def may(self, right: Right) -> bool:
        """Return whether the holder has a right."""
        return _RIGHTS.index(right) <= _RIGHTS.index(self.right)


class Access:
    """The tokens in a token file, which is read again when it changes.

    Requests trigger the check for changes, at most once per `TOKEN_FILE_POLL_S`. A pipe is read
    only once. If a changed file is invalid, the previous tokens stay valid. `clock`: monotonic, in
    seconds. The constructor raises DriftlineError if the file is unreadable or invalid.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = monotonic) -> None:
        self._path = path
        self._clock = clock
        self._content = _read_tokens(path)
        self._holders = _parse_holders(path, *self._content)
        self._next_check_at = clock() + TOKEN_FILE_POLL_S if path.is_file() else inf

    def holder(self, authorization: str) -> Holder:
        """Return the holder of the token in this `Authorization` header. Raises ApiError."""
        self._reload_if_changed()
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise ApiError("token", "a token is required: send `Authorization: Bearer TOKEN`")
        digest = sha256(token.strip().encode("utf-8", "surrogatepass")).digest()
        match = None
        for holder in self._holders:  # no early exit, against timing attacks
            if hmac.compare_digest(holder.digest, digest):
                match = holder
        if match is None:
            raise ApiError("token", "this token is unknown to the service")
        return match

    def _reload_if_changed(self) -> None:
        now = self._clock()
        if now < self._next_check_at:
            return
        self._next_check_at = now + TOKEN_FILE_POLL_S
        is_file = self._path.is_file()  # opening a pipe would block until it has a writer
        content = (
            _read_tokens(self._path) if is_file else ("", "it is missing or not a regular file")
        )
        if content == self._content:
            return
        self._content = content
        try:
            self._holders = _parse_holders(self._path, *content)
        except DriftlineError as error:
            text = f"{error}; the previous access tokens stay valid"
            log.warning(text, extra=event_fields("tokens-kept", reason=str(error)))
        else:
            count = len(self._holders)
            fields = event_fields("tokens-loaded", path=str(self._path), count=count)
            log.info("%s was read again; access tokens: %d", self._path, count, extra=fields)


def _read_tokens(path: Path) -> tuple[str, str]:
    """Return (text of a file, ""), or ("", the reason why it cannot be read)."""
    try:
        return path.read_text(encoding="utf-8"), ""
    except (OSError, ValueError) as error:
        return "", str(error)


def _parse_holders(path: Path, text: str, problem: str) -> tuple[Holder, ...]:
    """Parse the result of `_read_tokens`. Raises DriftlineError."""
    if problem:
        raise DriftlineError(f"{path}: cannot read the access tokens: {problem}")
    holders = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            holders.append(_parse_holder(line, f"{path}, line {number}"))
    if not holders:
        raise DriftlineError(f"{path} has no access token")
    return tuple(holders)


def new_token(right: Right, name: str) -> tuple[str, str]:
    """Return a new token, and its line for the token file."""
    token = secrets.token_urlsafe(32)
    return token, f"{right} {sha256(token.encode()).hexdigest()} {name}"


def check_exposure(host: str, access: Access | None, is_encrypted: bool) -> None:
    """Reject a service that listens beyond loopback without access tokens. Raises NotPermitted.

    Logs a warning if clients would send tokens to the service unencrypted. `host`: the address at
    which the service listens; `access`: None if there is no token file.
    """
    if _is_loopback(host):
        return
    if access is None:
        raise NotPermitted(
            f"{host} can be reached by other machines, so clients need a token: "
            "give a file of access tokens, --tokens FILE, or listen on 127.0.0.1"
        )
    if not is_encrypted:
        log.warning(
            "access tokens are sent to %s unencrypted, and can be intercepted. Give --certificate "
            "and --key, unless a proxy terminates HTTPS",
            host,
            extra=event_fields("tokens-in-the-clear", host=host),
        )


def check_host(host: str) -> None:
    """Reject a request whose host name is not local. For a service without tokens. Raises ApiError.

    Prevents DNS rebinding: a site can make its own name resolve to this machine, and its pages
    could then read the responses of this service. `host`: the `Host` header; "" if missing.
    """
    if host and not _is_this_machine(host):
        raise ApiError(
            "right",
            f"the Host {host[:100]!r} is not this machine, and this service has no access "
            "control: use localhost. Behind a proxy, give --tokens, or let the proxy send "
            "`Host: localhost`",
        )


def check_origin(headers: Mapping[str, str]) -> None:
    """Reject a write that a browser sends for a page of another origin. Raises ApiError."""
    origin = headers.get("origin")
    if origin is None and headers.get("sec-fetch-site") == "cross-site":
        raise ApiError("right", "a page of another site may not write to this service")
    if origin is not None and origin.partition("://")[2] != headers.get("host", ""):
        raise ApiError("right", f"a page of {origin[:100]!r} may not write to this service")


@lru_cache(1 << 6)
def _is_this_machine(host: str) -> bool:
    name = re.sub(r":[0-9]*$", "", host.lower())
    return _is_loopback(name) or name.endswith(".localhost")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _parse_holder(line: str, where: str) -> Holder:
    right_text, digest_text, name, *_ = *line.split(None, 2), "", "", ""
    for right in _RIGHTS:
        if right_text == right:
            try:
                digest = bytes.fromhex(digest_text)
            except ValueError:
                break
            if len(digest) == sha256().digest_size:
                return Holder(name.strip() or "?", right, digest)
    raise DriftlineError(
        f"{where}: this is not an access token; a line has a right ({', '.join(_RIGHTS)}), "
        "the SHA-256 of the token, and a name"
    )
