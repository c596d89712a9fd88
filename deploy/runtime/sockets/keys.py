"""Keys: CURVE key pairs with names and rights, and sets of them in a directory.

NAME.key is a key in JSON, readable only by its owner. `authorised` contains the public halves of
all keys, with their names and rights, and no secret. A host gets `authorised` and its own file, a
client its own file. Existing key files are never overwritten. Only the entry in `authorised` grants
rights; the rights in a key file are information for its holder.

    {"name": "shop", "public": "rq:rM...", "secret": "...",
     "rights": {"names": ["shop", "shop-*"], "sources": ["orders"]},
     "servers": {"a": "..."}}

`servers` maps each host to its public key, with which a producer checks the host that it connects
to. It is empty in the keys of hosts and consumers.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Self, TypeVar

import msgspec
import zmq
from msgspec import Struct

from driftline.engine.durable import Lock, make_directory, replace_file, sync_directory
from driftline.engine.errors import MalformedMessage, NotPermitted, Unavailable
from driftline.engine.wire.addresses import Address, host_of, is_public_key, parse

SUFFIX = ".key"

AUTHORISED = "authorised"
"""Name of the file with the public halves."""

BYTES_MAX = 1 << 24
"""Maximum size of the file `authorised`."""

KEY_MODE, DIRECTORY_MODE = 0o600, 0o700

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

HOST_ROLE_PATTERNS = ("master", "node-*", "front-*", "poller", "poller-*", "agent")
"""Patterns of the names of the roles that a host may run."""

HOST, PRODUCER, CONSUMER = "host", "producer", "consumer"
"""Kinds of key holders; a consumer takes outputs."""

NAME_CHARS_MAX = 200
"""Maximum length of a pattern in `Rights`."""

_Decoded = TypeVar("_Decoded")


class Rights(Struct, frozen=True):
    """Names that a key speaks for, sources that it sends to, and sinks whose outputs it takes.

    Each pattern is an exact name, or a prefix followed by `*`:

        >>> Rights(names=("master", "node-*")).may_send_as("node-3")
        True
        >>> Rights(names=("shop", "shop-*"), sources=("orders",)).may_send_to("payments")
        False

    A host has only names: those of the roles that it may run. A producer has sources; its names are
    the producer ids that it may use. A consumer has sinks; its only name is `consumer`, its role.
    The constructor raises NotPermitted for an invalid pattern.
    """

    names: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.names, *self.sources, *self.sinks):
            if "*" in pattern[:-1] or not 0 < len(pattern) <= NAME_CHARS_MAX:
                raise NotPermitted(f"{pattern!r} is neither a name nor a prefix followed by *")
            if not pattern.isprintable():
                raise NotPermitted(f"{pattern!r} has characters that cannot be printed")

    @property
    def is_member(self) -> bool:
        """Whether the key may send to members at all: producers send only to the intake."""
        return not self.sources

    @property
    def holder_kind(self) -> str:
        """The kind of the key's holder: a host, a producer or a consumer."""
        return PRODUCER if self.sources else CONSUMER if self.sinks else HOST

    def may_send_as(self, name: str) -> bool:
        """Return whether the key may send messages under this name."""
        return _matches_any(name, self.names)

    def may_send_to(self, source: str) -> bool:
        """Return whether the key may send records to this source."""
        return _matches_any(source, self.sources)

    def may_take(self, sinks: Iterable[str]) -> bool:
        """Return whether the key may take the outputs of all these sinks."""
        return all(_matches_any(sink, self.sinks) for sink in sinks)


def host_rights() -> Rights:
    """Return the rights of a host of a cluster."""
    return Rights(HOST_ROLE_PATTERNS)


@lru_cache(maxsize=10_000)
def _matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
        for pattern in patterns
    )


@dataclass(frozen=True, slots=True)
class KeyPair:
    """CURVE key pair with its name and its rights."""

    name: str
    public: str
    secret: str = field(repr=False)
    rights: Rights
    servers: Mapping[str, str] = field(default_factory=dict)
    """Host -> its public key."""

    @classmethod
    def new(cls, name: str, rights: Rights, servers: Mapping[str, str] | None = None) -> Self:
        """Return a new pair. Raises NotPermitted for a name that cannot be a file name."""
        if _NAME.fullmatch(name) is None:
            raise NotPermitted(
                f"{name!r} cannot be the name of a key: it has letters, digits, `-`, `_` and `.`, "
                "at most 64, and begins with a letter or digit"
            )
        public, secret = zmq.curve_keypair()
        return cls(name, public.decode(), secret.decode(), rights, dict(servers or {}))

    def server_at(self, address: str) -> Address:
        """Return the address of an intake with the public key of its host.

        The key is the one in the address, or else that of the host named in the address, or else
        that of the only host in `servers`. An `ipc://` address needs no key. Raises NotPermitted if
        the address is invalid or the key is unknown.
        """
        try:
            server = parse(address)
        except MalformedMessage as error:
            raise NotPermitted(str(error)) from None
        if server.public_key or server.endpoint.startswith("ipc://"):
            return server
        hosts = dict(self.servers)
        public = hosts.get(host_of(server.endpoint))
        if public is None and len(hosts) == 1:
            [public] = hosts.values()
        if public is None:
            raise NotPermitted(
                f"which host is {address}? The key {self.name} knows {', '.join(hosts) or 'none'}: "
                f"give one of these names, or {server.endpoint}#PUBLIC, with the public key of the "
                f"host as in the file {AUTHORISED!r}"
            )
        return server._replace(public_key=public)


def read_key(path: Path) -> KeyPair:
    """Read a key file. Raises NotPermitted if others can read it or it is damaged, Unavailable."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as stream:
            mode = stat.S_IMODE(os.fstat(file).st_mode)
            if mode & 0o077:
                raise NotPermitted(
                    f"others can read the key {path} (mode {mode:o}): run chmod 600 {path}; make a "
                    "new key if others may have read this one"
                )
            data = stream.read()
    except OSError as error:
        raise Unavailable(f"cannot read the key {path}: {error.strerror}") from None
    key = _decoded(path, data, KeyPair)
    if not all(map(is_public_key, (key.public, key.secret, *key.servers.values()))):
        raise NotPermitted(f"{path} is damaged: a key in it is not in Z85 format")
    if zmq.curve_public(key.secret.encode()).decode() != key.public:
        raise NotPermitted(f"{path} is damaged: its halves do not belong together")
    return key


def _decoded(path: Path, data: bytes, kind: type[_Decoded]) -> _Decoded:
    """Decode a JSON file. Raises NotPermitted."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, NotPermitted, ValueError, RecursionError) as error:
        raise NotPermitted(f"{path} is damaged: {error}") from None


def _encoded(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def own_key(path: Path, *, producer: bool = False) -> KeyPair:
    """Return the key of this process, from a file or a directory of keys.

    `producer`: use the key of a producer, not that of a host. A directory must have one key of this
    kind; of several host keys, the one named after this machine is used. Raises NotPermitted,
    Unavailable.
    """
    if not path.is_dir():
        _check_directory(path.parent)
        return read_key(path)
    _check_directory(path)
    keys = [read_key(file) for file in sorted(path.glob(f"*{SUFFIX}"))]
    kind = PRODUCER if producer else HOST
    candidates = [key for key in keys if key.rights.holder_kind == kind]
    if len(candidates) > 1 and not producer:
        hostname = socket.gethostname()
        named = [key for key in candidates if key.name in (hostname, hostname.partition(".")[0])]
        candidates = named or candidates
    if len(candidates) != 1:
        names = ", ".join(key.name for key in candidates)
        raise NotPermitted(
            f"{path} has several keys of a {kind} ({names}): give the file of one, such as "
            f"{path / (candidates[0].name + SUFFIX)}"
            if candidates
            else f"{path} has no key of a {kind}: `driftline keys {path} --help` explains how to "
            "make one"
        )
    return candidates[0]


def _check_directory(path: Path) -> None:
    """Raise NotPermitted if the mode of a directory lets other users access the keys in it.

    Others must not read or write a directory with `authorised`, and must not write a directory with
    single keys. A directory with the sticky bit, such as /tmp, passes. Raises Unavailable if the
    mode cannot be read.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise Unavailable(f"cannot read the keys in {path}: {error.strerror}") from None
    forbidden = 0o077 if (path / AUTHORISED).exists() else 0o022
    if mode & forbidden and not mode & stat.S_ISVTX:
        raise NotPermitted(
            f"others can read or replace the keys in {path} (mode {mode:o}): run chmod 700 {path}"
        )


class _Entry(Struct, frozen=True):
    """Entry of a key in `authorised`."""

    public: str
    rights: Rights


class Authorised:
    """Public halves of the keys in a directory. Thread-safe.

    The file is read again when it has changed: an added client can connect at once, and a removed
    client cannot connect any more, but its open connections stay. If the file becomes unreadable or
    damaged, the previous entries stay valid. The constructor raises NotPermitted, Unavailable.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / AUTHORISED
        self._lock = threading.Lock()
        self._by_public: dict[str, tuple[str, Rights]] = {}
        self._file_stamp: tuple[int, ...] = ()
        """Modification time, inode and size of the file when it was last read."""
        self._read()

    def find_key(self, public: str) -> tuple[str, Rights] | None:
        """Return the name and the rights of a public key; None: it is not authorised."""
        with self._lock:
            with suppress(NotPermitted, Unavailable):  # keep the previous entries
                self._read()
            return self._by_public.get(public)

    def __iter__(self) -> Iterator[tuple[str, str, Rights]]:
        for public, (name, rights) in self._by_public.items():
            yield name, public, rights

    def _read(self) -> None:
        try:
            status = self.path.stat()
            file_stamp = status.st_mtime_ns, status.st_ino, status.st_size
            if file_stamp == self._file_stamp:
                return
            if status.st_size > BYTES_MAX:
                raise NotPermitted(f"{self.path} is too large")
            data = self.path.read_bytes()
        except OSError as error:
            raise Unavailable(f"cannot read {self.path}: {error.strerror}") from None
        entries: dict[str, tuple[str, Rights]] = {}
        for name, entry in _decoded(self.path, data, dict[str, _Entry]).items():
            if not is_public_key(entry.public) or entry.public in entries:
                raise NotPermitted(f"{self.path} is damaged: {name} has no key of its own")
            entries[entry.public] = name, entry.rights
        self._by_public, self._file_stamp = entries, file_stamp


def add_keys(
    directory: Path,
    hosts: Sequence[str] = (),
    producers: Mapping[str, Sequence[str]] | None = None,
    consumers: Mapping[str, Sequence[str]] | None = None,
) -> list[KeyPair]:
    """Make keys, and the directory if there is none. Return the new keys.

    `producers`: name -> sources; `consumers`: name -> sinks. Raises NotPermitted if a name is taken
    or there is no key of a host, Unavailable.
    """
    wanted = [(name, host_rights()) for name in hosts]
    for name, sources in (producers or {}).items():
        wanted.append((name, Rights((name, f"{name}-*"), sources=tuple(sources))))
    for name, sinks in (consumers or {}).items():
        wanted.append((name, Rights((CONSUMER,), sinks=tuple(sinks))))
    return make_keys(directory, wanted)


def make_keys(directory: Path, wanted: Sequence[tuple[str, Rights]]) -> list[KeyPair]:
    """Make keys like `add_keys`, for (name, rights) pairs."""
    try:
        if not directory.exists():
            make_directory(directory.parent)
            directory.mkdir(DIRECTORY_MODE)
            directory.chmod(DIRECTORY_MODE)  # `mkdir` subtracts the umask
        lock = Lock(directory / ".lock", f"{directory} is being changed", wait_s=5.0)
        try:
            return _make(directory, wanted)
        finally:
            lock.release()
    except OSError as error:
        raise Unavailable(f"cannot make keys in {directory}: {error.strerror}") from None


def _make(directory: Path, wanted: Sequence[tuple[str, Rights]]) -> list[KeyPair]:
    path = directory / AUTHORISED
    existing = Authorised(directory) if path.exists() else ()
    entries = {name: _Entry(public, rights) for name, public, rights in existing}
    for name, _ in wanted:
        if name in entries or (directory / f"{name}{SUFFIX}").exists():
            raise NotPermitted(
                f"{directory} has a key {name} already, which is not overwritten: give another "
                f"name, or remove {name}{SUFFIX} and its entry in {AUTHORISED}"
            )
    servers = {
        name: each.public for name, each in entries.items() if each.rights.holder_kind == HOST
    }
    new_keys = []
    for name, rights in wanted:
        key = KeyPair.new(name, rights, servers if rights.sources else None)
        if rights.holder_kind == HOST:
            servers[name] = key.public
        new_keys.append(key)
    if not servers:
        raise NotPermitted(f"{directory} has no key of a host, which clients need: give --hosts")
    for key in new_keys:  # before `authorised`, so that every authorised name has a key file
        _write_secret(directory / f"{key.name}{SUFFIX}", _encoded(key))
        entries[key.name] = _Entry(key.public, key.rights)
    sync_directory(directory)
    replace_file(path, _encoded(entries))
    return new_keys


def _write_secret(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, KEY_MODE)
    with os.fdopen(file, "wb") as stream:
        os.fchmod(file, KEY_MODE)
        stream.write(data)
        stream.flush()
        os.fsync(file)
