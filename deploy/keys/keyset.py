"""A set of keys in a directory: made, added to, and read by every process.

The directory has NAME.key for each key, and `authorised`: the public halves of all keys, with their
names and rights, and no secret. A host gets `authorised` and its own file, a client its own file.
Nothing that is there is overwritten.

    [keys.shop]
    public = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    names = ["shop", "shop-*"]
    sources = ["orders"]
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from driftline.deploy.keys.key import (
    AUTHORISED,
    DIRECTORY_MODE,
    HOST,
    KEY_MODE,
    SUFFIX,
    Key,
    Rights,
    consumer_rights,
    host_rights,
    producer_rights,
    quoted,
    rights_as_toml,
    rights_in,
    tomls,
)
from driftline.engine.durable import make_directory, replace_file, sync_directory
from driftline.engine.errors import NotPermitted, Unavailable
from driftline.engine.locks import Lock
from driftline.engine.wire.addresses import is_public

BYTES_MAX = 1 << 24


class Authorised:
    """The public halves of the keys in a directory. Any thread may ask.

    The file is read again when it has changed: so a client that is added can connect at once, and
    one that is removed cannot any more, though its connections stay. A file that cannot be read, or
    is damaged, changes nothing. Raises NotPermitted, Unavailable.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / AUTHORISED
        self._lock = threading.Lock()
        self._by_public: dict[str, tuple[str, Rights]] = {}
        self._seen: tuple[int, ...] = ()
        """What tells that the file has changed."""
        self._read()

    def who(self, public: str) -> tuple[str, Rights] | None:
        """The name and the rights of a key; None: it is not authorised."""
        with self._lock:
            with suppress(NotPermitted, Unavailable):  # then what was read before holds
                self._read()
            return self._by_public.get(public)

    def __iter__(self) -> Iterator[tuple[str, str, Rights]]:
        for public, (name, rights) in self._by_public.items():
            yield name, public, rights

    def _read(self) -> None:
        try:
            at = self.path.stat()
            seen = at.st_mtime_ns, at.st_ino, at.st_size
            if seen == self._seen:
                return
            if at.st_size > BYTES_MAX:
                raise NotPermitted(f"{self.path} is too large")
            data = self.path.read_bytes()
        except OSError as error:
            raise Unavailable(f"cannot read {self.path}: {error.strerror}") from None
        self._by_public, self._seen = _entries(self.path, data), seen


def _entries(path: Path, data: bytes) -> dict[str, tuple[str, Rights]]:
    tables = tomls(path, data).get("keys", {})
    found: dict[str, tuple[str, Rights]] = {}
    for name, table in tables.items() if isinstance(tables, dict) else ():
        public = table.get("public") if isinstance(table, dict) else None
        if not isinstance(public, str) or not is_public(public):
            raise NotPermitted(f"{path} is damaged: {name} has no public key")
        if public in found:
            raise NotPermitted(
                f"{path} is damaged: {found[public][0]} and {name} have the same key"
            )
        found[public] = name, rights_in(path, table)
    return found


def as_toml(entries: Iterable[tuple[str, str, Rights]]) -> str:
    """The text of the file; an entry is (name, public key, rights)."""
    lines = ["# Who may speak for whom: no secret is in this file. `driftline keys` writes it."]
    for name, public, rights in entries:
        lines += ["", f"[keys.{quoted(name)}]", f"public = {quoted(public)}"]
        lines += rights_as_toml(rights)
    return "\n".join(lines) + "\n"


def entry_of(key: Key) -> tuple[str, str, Rights]:
    """The entry of a key."""
    return key.name, key.public, key.rights


def add_keys(
    directory: Path,
    hosts: Sequence[str] = (),
    producers: Mapping[str, Sequence[str]] | None = None,
    consumers: Mapping[str, Sequence[str]] | None = None,
) -> list[Key]:
    """Make keys, and the set if there is none; returns what was made.

    `producers`: name -> sources; `consumers`: name -> sinks. Raises NotPermitted if a name is taken
    or the set has no host, Unavailable.
    """
    wanted = [(name, host_rights()) for name in hosts]
    wanted += [(name, producer_rights(name, to)) for name, to in (producers or {}).items()]
    wanted += [(name, consumer_rights(of)) for name, of in (consumers or {}).items()]
    return make_keys(directory, wanted)


def make_keys(directory: Path, wanted: Sequence[tuple[str, Rights]]) -> list[Key]:
    """The same for (name, rights)."""
    try:
        if not directory.exists():
            make_directory(directory.parent)
            directory.mkdir(DIRECTORY_MODE)
            directory.chmod(DIRECTORY_MODE)  # whatever the umask takes away
        lock = Lock(directory / ".lock", f"{directory} is being changed", wait_s=5.0)
        try:
            return _make(directory, wanted)
        finally:
            lock.release()
    except OSError as error:
        raise Unavailable(f"cannot make keys in {directory}: {error.strerror}") from None


def _make(directory: Path, wanted: Sequence[tuple[str, Rights]]) -> list[Key]:
    path = directory / AUTHORISED
    entries = list(Authorised(directory)) if path.exists() else []
    taken = {name for name, _, _ in entries}
    for name, _ in wanted:
        if name in taken or (directory / f"{name}{SUFFIX}").exists():
            raise NotPermitted(
                f"{directory} has a key {name} already, which is not overwritten: give another "
                f"name, or remove {name}{SUFFIX} and its entry in {AUTHORISED}"
            )
        taken.add(name)
    servers = {name: public for name, public, rights in entries if rights.whose == HOST}
    made = []
    for name, rights in wanted:
        key = Key.new(name, rights, servers if rights.sources else None)
        if rights.whose == HOST:
            servers[name] = key.public
        made.append(key)
    if not servers:
        raise NotPermitted(f"{directory} has no host: give --hosts, so that clients can know it")
    for key in made:  # before `authorised`: who is authorised has a key
        _write_secret(directory / f"{key.name}{SUFFIX}", key.as_toml().encode())
    sync_directory(directory)
    replace_file(path, as_toml([*entries, *map(entry_of, made)]).encode())
    return made


def _write_secret(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, KEY_MODE)
    with os.fdopen(file, "wb") as opened:
        os.fchmod(file, KEY_MODE)
        opened.write(data)
        opened.flush()
        os.fsync(file)
