"""Who may do what: access tokens, which are kept as hashes.

A file has a line for each token: its right, the SHA-256 of the token, and a name for people.

    write 5f0c...e1 shop
    read  77aa...09 dashboard

A token is 32 random bytes, so that a fast hash is as good as a slow one: nobody guesses it. Who may
write may read, and an admin may do all.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, get_args

from driftline.engine.errors import DriftlineError, NotPermitted
from driftline.serve.errors import Refused

Right = Literal["read", "write", "admin"]

_RIGHTS: tuple[Right, ...] = get_args(Right)
"""Each has those before it, too."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a token."""

    name: str
    right: Right
    digest: bytes

    def may(self, right: Right) -> bool:
        """Whether the holder has a right."""
        return _RIGHTS.index(right) <= _RIGHTS.index(self.right)


@dataclass(frozen=True, slots=True)
class Access:
    """The tokens of a service."""

    holders: Sequence[Holder]

    def holder(self, authorization: str) -> Holder:
        """Who sends this header. Raises Refused."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refused("token", "a token is needed: send `Authorization: Bearer TOKEN`")
        digest = sha256(token.strip().encode("utf-8", "surrogatepass")).digest()
        found = None
        for holder in self.holders:  # all of them, so that the time says nothing
            if hmac.compare_digest(holder.digest, digest):
                found = holder
        if found is None:
            raise Refused("token", "this token is not known here")
        return found


def load_access(path: Path) -> Access:
    """Read a file of tokens. Raises DriftlineError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise DriftlineError(f"{path}: no access tokens can be read: {error}") from None
    holders = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            holders.append(_holder(line, f"{path}, line {number}"))
    if not holders:
        raise DriftlineError(f"{path} has no access token")
    return Access(tuple(holders))


def new_token(right: Right, name: str) -> tuple[str, str]:
    """A new token, to be given to its holder, and its line for the file."""
    token = secrets.token_urlsafe(32)
    return token, f"{right} {sha256(token.encode()).hexdigest()} {name}"


def check_exposure(host: str, access: Access | None) -> None:
    """Refuse to listen where others are, if everybody could do all. Raises NotPermitted."""
    if access is None and not _is_loopback(host):
        raise NotPermitted(
            f"{host} can be reached by other machines, so whoever asks needs a token: "
            "give a file of access tokens, --tokens FILE, or listen on 127.0.0.1"
        )


def check_host(host: str) -> None:
    """Refuse a request that was sent to another name, where everybody may do all: a site can have
    its own name lead to this machine, and its page would be answered here. Raises Refused.

    `host`: the header, "" without.
    """
    name = re.sub(r":[0-9]*$", "", host.lower())
    if host and not (_is_loopback(name) or name.endswith(".localhost")):
        raise Refused(
            "right",
            f"the Host {host[:100]!r} is not this machine, and here everybody may do all: ask "
            "localhost. Who serves behind a proxy gives --tokens, or has the proxy send "
            "`Host: localhost`",
        )


def check_origin(headers: Mapping[str, str]) -> None:
    """Refuse to write what a page of another site has a browser send. Raises Refused."""
    origin = headers.get("origin")
    if origin is None and headers.get("sec-fetch-site") == "cross-site":
        raise Refused("right", "a page of another site may not write here")
    if origin is not None and origin.partition("://")[2] != headers.get("host", ""):
        raise Refused("right", f"a page of {origin[:100]!r} may not write here")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _holder(line: str, where: str) -> Holder:
    right, digest, name, *_ = *line.split(None, 2), "", "", ""
    for each in _RIGHTS:
        if right == each:
            try:
                found = bytes.fromhex(digest)
            except ValueError:
                break
            if len(found) == sha256().digest_size:
                return Holder(name.strip() or "?", each, found)
    raise DriftlineError(
        f"{where}: this is no access token; a line has a right ({', '.join(_RIGHTS)}), "
        "the SHA-256 of the token, and a name"
    )
