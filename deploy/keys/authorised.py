"""The public halves of all keys, with their names and rights: who is who, for every process.

The file `authorised`, which holds no secret. It is read again when it has changed: so a client that
is added can connect at once, and one that is removed cannot any more, though its connections stay.
A file that cannot be read, or is damaged, changes nothing.

    [keys.shop]
    public = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    names = ["shop", "shop-*"]
    sources = ["orders"]
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from driftline.deploy.keys.key import AUTHORISED, Key, quoted, rights_as_toml, rights_in, tomls
from driftline.deploy.keys.rights import Rights
from driftline.engine.errors import NotPermitted, Unavailable
from driftline.engine.wire.addresses import is_public

BYTES_MAX = 1 << 24


class Authorised:
    """The keys in a directory. Any thread may ask. Raises NotPermitted, Unavailable."""

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
