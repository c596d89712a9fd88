"""A key: a pair of CURVE with a name and rights, in a file that only its owner can read.

NAME.key is TOML. What counts is the public half in `authorised` (`deploy.keys.keyset`): the
rights here tell the holder of the key what it is for, before anybody refuses it.

    name = "shop"
    public = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    secret = "..."
    names = ["shop", "shop-*"]
    sources = ["orders"]

    [servers]                     of a producer: the public keys of the hosts that it may meet
    a = "..."
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import zmq

from driftline.engine.errors import MalformedMessage, NotPermitted, Unavailable
from driftline.engine.wire.addresses import Address, host_of, is_public, parse

SUFFIX = ".key"

AUTHORISED = "authorised"
"""The file of the public halves."""

KEY_MODE, DIRECTORY_MODE = 0o600, 0o700

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


HOST_NAMES = ("master", "node-*", "front-*", "watch", "watch-*", "agent")
"""What a host may run."""

HOST, PRODUCER, CONSUMER = "host", "producer", "consumer"
"""Whose a key may be; the last one is the party that takes outputs, too."""

NAME_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Rights:
    """The names that a key speaks for, the sources that it sends to, the sinks that it takes.

    Each is given exactly, or by its beginning and a `*`:

        >>> Rights(names=("master", "node-*")).speaks_for("node-3")
        True
        >>> Rights(names=("shop", "shop-*"), sources=("orders",)).may_send_to("payments")
        False

    Hosts have names only, those of the parties that may run there. A producer has sources, and the
    ids of producers that it may use as its names; a consumer has sinks, and the name of a party.
    Raises NotPermitted if a pattern cannot be one.
    """

    names: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.names, *self.sources, *self.sinks):
            if "*" in pattern[:-1] or not 0 < len(pattern) <= NAME_CHARS_MAX:
                raise NotPermitted(f"{pattern!r} is neither a name nor the beginning of one with *")
            if not pattern.isprintable():
                raise NotPermitted(f"{pattern!r} has characters that no name has")

    @property
    def is_member(self) -> bool:
        """Whether it may speak to members at all: producers speak to the intake only."""
        return not self.sources

    @property
    def whose(self) -> str:
        """Of what kind is who has such a key: a host, a producer or a consumer."""
        return PRODUCER if self.sources else CONSUMER if self.sinks else HOST

    def speaks_for(self, name: str) -> bool:
        """Whether it may speak in this name."""
        return _fits(name, self.names)

    def may_send_to(self, source: str) -> bool:
        """Whether it may send records to this source."""
        return _fits(source, self.sources)

    def may_take(self, sinks: Iterable[str]) -> bool:
        """Whether it may have the outputs of all these sinks."""
        return all(_fits(sink, self.sinks) for sink in sinks)


def host_rights() -> Rights:
    """The rights of a host of a cluster."""
    return Rights(HOST_NAMES)


def producer_rights(name: str, sources: Iterable[str]) -> Rights:
    """The rights of a producer; `name`: that of its key."""
    return Rights((name, f"{name}-*"), sources=tuple(sources))


def consumer_rights(sinks: Iterable[str]) -> Rights:
    """The rights of a consumer."""
    return Rights((CONSUMER,), sinks=tuple(sinks))


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
        for pattern in patterns
    )


@dataclass(frozen=True, slots=True)
class Key:
    """A pair of CURVE, its name and its rights."""

    name: str
    public: str
    secret: str = field(repr=False)
    rights: Rights
    servers: Mapping[str, str] = field(default_factory=dict)
    """Host -> its public key."""

    @classmethod
    def new(cls, name: str, rights: Rights, servers: Mapping[str, str] | None = None) -> Self:
        """A new pair. Raises NotPermitted for a name that a file cannot have."""
        if _NAME.fullmatch(name) is None:
            raise NotPermitted(
                f"{name!r} cannot be the name of a key: it has letters, digits, `-`, `_` and `.`, "
                "at most 64, and begins with a letter or digit"
            )
        public, secret = zmq.curve_keypair()
        return cls(name, public.decode(), secret.decode(), rights, dict(servers or {}))

    def as_toml(self) -> str:
        """The text of its file."""
        own = {"name": self.name, "public": self.public, "secret": self.secret}
        lines = [
            "# A secret: whoever has this file can speak for this key.",
            *(f"{name} = {quoted(text)}" for name, text in own.items()),
            *rights_as_toml(self.rights),
        ]
        if self.servers:
            lines += ["", "[servers]"]
            lines += [f"{quoted(name)} = {quoted(text)}" for name, text in self.servers.items()]
        return "\n".join(lines) + "\n"

    def server_at(self, address: str) -> Address:
        """The address of an intake, with the public key of its host: the one in the address, that
        of the host of this name, or that of the only host. Raises NotPermitted."""
        try:
            where = parse(address)
        except MalformedMessage as error:
            raise NotPermitted(str(error)) from None
        if where.public or where.endpoint.startswith("ipc://"):
            return where
        known = dict(self.servers)
        public = known.get(host_of(where.endpoint))
        if public is None and len(known) == 1:
            [public] = known.values()
        if public is None:
            raise NotPermitted(
                f"which host is {address}? The key {self.name} knows {', '.join(known) or 'none'}: "
                f"give one of these names, or {where.endpoint}#PUBLIC, with the public key of the "
                f"host as in the file {AUTHORISED!r}"
            )
        return where._replace(public=public)


def read_key(path: Path) -> Key:
    """Read a key. Raises NotPermitted if others could read it too or it is none, Unavailable."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as opened:
            _check_mode(path, os.fstat(file).st_mode)
            data = opened.read()
    except OSError as error:
        raise Unavailable(f"cannot read the key {path}: {error.strerror}") from None
    told = tomls(path, data)
    servers = told.get("servers", {})
    if not isinstance(servers, dict) or not all(map(_is_key, servers.values())):
        raise NotPermitted(f"{path} is damaged: [servers] does not hold public keys")
    name, public, secret = (told.get(part) for part in ("name", "public", "secret"))
    if not isinstance(name, str) or not (_is_key(public) and _is_key(secret)):
        raise NotPermitted(f"{path} is damaged: it has no name, or no pair of keys")
    assert isinstance(secret, str)
    if zmq.curve_public(secret.encode()).decode() != public:
        raise NotPermitted(f"{path} is damaged: its halves do not belong together")
    return Key(name, str(public), secret, rights_in(path, told), servers)


def own_key(where: Path, *, producer: bool = False) -> Key:
    """The key of this process: a file, or the one of its kind in a directory.

    Of several hosts it is the one with the name of this machine. Raises NotPermitted, Unavailable.
    """
    if not where.is_dir():
        _check_directory(where.parent)
        return read_key(where)
    _check_directory(where)
    found = [read_key(path) for path in sorted(where.glob(f"*{SUFFIX}"))]
    kind = "producer" if producer else "host"
    fitting = [
        key for key in found if bool(key.rights.sources) is producer and not key.rights.sinks
    ]
    if len(fitting) > 1 and not producer:
        here = socket.gethostname()
        named = [key for key in fitting if key.name in (here, here.partition(".")[0])]
        fitting = named or fitting
    if len(fitting) != 1:
        names = ", ".join(key.name for key in fitting)
        raise NotPermitted(
            f"{where} has the keys {names}, each of a {kind}: give the file of one, such as "
            f"{where / (fitting[0].name + SUFFIX)}"
            if fitting
            else f"{where} has no key of a {kind}: `driftline keys {where} --help` says how to make"
            " one"
        )
    return fitting[0]


def _check_directory(path: Path) -> None:
    """Others must not read a set of keys, nor replace a single one. Raises NotPermitted."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise Unavailable(f"cannot read the keys in {path}: {error.strerror}") from None
    forbidden = 0o077 if (path / AUTHORISED).exists() else 0o022
    if mode & forbidden and not mode & stat.S_ISVTX:
        raise NotPermitted(
            f"others can get at the keys in {path} (mode {mode:o}): chmod 700 {path}"
        )


def _check_mode(path: Path, mode: int) -> None:
    if stat.S_IMODE(mode) & 0o077:
        raise NotPermitted(
            f"others can read the key {path} (mode {stat.S_IMODE(mode):o}): chmod 600 {path}; make "
            "a new one if anybody has"
        )


# TOML, of which the standard library writes nothing.


def quoted(text: str) -> str:
    """A text as TOML has it. Precondition: all its characters can be printed."""
    return json.dumps(text, ensure_ascii=False)


def rights_as_toml(rights: Rights) -> list[str]:
    """The lines of rights."""
    parts: Iterable[tuple[str, tuple[str, ...]]] = (
        ("names", rights.names),
        ("sources", rights.sources),
        ("sinks", rights.sinks),
    )
    return [f"{name} = [{', '.join(map(quoted, texts))}]" for name, texts in parts if texts]


def rights_in(path: Path, told: Mapping[str, object]) -> Rights:
    """The rights in a table. Raises NotPermitted."""
    found = {}
    for name in ("names", "sources", "sinks"):
        texts = told.get(name, [])
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise NotPermitted(f"{path} is damaged: {name} is not a list of texts")
        found[name] = tuple(texts)
    try:
        return Rights(**found)
    except NotPermitted as error:
        raise NotPermitted(f"{path} is damaged: {error}") from None


def tomls(path: Path, data: bytes) -> dict[str, object]:
    """What a file of TOML holds. Raises NotPermitted."""
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise NotPermitted(f"{path} is damaged: {error}") from None


def _is_key(text: object) -> bool:
    return isinstance(text, str) and is_public(text)
