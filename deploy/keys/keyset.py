"""A set of keys in a directory: made, and added to. Nothing that is there is overwritten.

The directory has NAME.key for each key, and `authorised`. A host gets `authorised` and its own
file, a client its own file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from driftline.deploy.keys.authorised import Authorised, as_toml, entry_of
from driftline.deploy.keys.key import AUTHORISED, DIRECTORY_MODE, KEY_MODE, SUFFIX, Key
from driftline.deploy.keys.rights import HOST, Rights, consumer_rights, host_rights, producer_rights
from driftline.engine.durable import make_directory, replace_file, sync_directory
from driftline.engine.errors import NotPermitted, Unavailable
from driftline.engine.locks import Lock


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
