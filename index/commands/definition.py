"""Definition of a served index: its schema and flow, stored in the state directory.

All processes of a service load its flow by name. The flow of an index depends on the index's
schema. The state directory therefore contains the schema file, and a module that contains the same
schema and builds the flow. Nodes and master import that module. On a cluster, all hosts receive a
wheel with the module.
"""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile, ZipInfo

from driftline.deploy.runtime.claims import STATE_DIRECTORY_HINT, claim
from driftline.engine.durable import make_directory, replace_file, translate_os_errors
from driftline.engine.errors import StateMismatch
from driftline.index.documents.schema import DEFAULT_FILE, Schema, load_schema

if TYPE_CHECKING:
    from driftline.index.searcher.searcher import Searcher
    from driftline.serve.hosting.config import ViewLocation, ViewSpec

VIEW = "documents"
"""Name of the view of an index."""

_SCHEMA, _FLOW_FILE, _SEARCHERS = "schema.toml", "index_flow.py", "searchers"
"""Files of the state directory; `_SEARCHERS` contains the number of searchers."""

_MODULE = '''"""Makes the flow of an index, by its schema. Written by Driftline."""

from driftline.index.documents.schema import read_schema
from driftline.index.documents.writes import document_flow

SCHEMA = {schema!r}

flow = document_flow(read_schema(SCHEMA, "the schema of the index"))
'''


def schema_in(state: Path) -> Schema:
    """Return the schema of the index in a state directory. Raises SchemaError."""
    return load_schema(state / _SCHEMA)


def define(state: Path, schema_path: Path | None) -> str:
    """Create the definition of an index in a state directory, or add new collections to it.

    `schema_path`: schema file of the user; None: the existing schema, or the default one. Returns
    the name of the flow, as `load_flow` expects it. Raises SchemaError, Unavailable; StateMismatch
    if `schema_path` lacks or changes an existing collection, or if only the schema file is missing
    in the state directory; InUse if there are new collections while the index is running.
    """
    with translate_os_errors("state directory", state, STATE_DIRECTORY_HINT):
        if (state / _SCHEMA).exists():
            if schema_path is not None:
                _extend(state, schema_path)
        else:
            _create(state, schema_path)
        _write(state / _FLOW_FILE, _MODULE.format(schema=(state / _SCHEMA).read_bytes()).encode())
    return f"{state / _FLOW_FILE}:flow"


def _create(state: Path, schema_path: Path | None) -> None:
    if (state / _FLOW_FILE).exists():
        raise StateMismatch(
            f"{state / _SCHEMA}, the schema file of the index, is missing: restore it from a copy"
        )
    if schema_path is not None:
        load_schema(schema_path)
    make_directory(state)
    data = DEFAULT_FILE if schema_path is None else schema_path.read_bytes()
    replace_file(state / _SCHEMA, data)


def _extend(state: Path, schema_path: Path) -> None:
    new, existing = load_schema(schema_path), schema_in(state)
    _check_unchanged(existing, new, schema_path, state)
    if new.fingerprint() != existing.fingerprint():
        # The service must be stopped: running processes do not read the schema again.
        lock = claim(state / "run.lock")
        try:
            replace_file(state / _SCHEMA, schema_path.read_bytes())
        finally:
            lock.release()


def _check_unchanged(existing: Schema, new: Schema, schema_path: Path, state: Path) -> None:
    """Raise StateMismatch unless all existing collections are unchanged in the new schema."""
    for name, collection in existing.collections.items():
        new_collection = new.collections.get(name)
        if new_collection is None or new_collection.fingerprint() != collection.fingerprint():
            problem = "has no" if new_collection is None else "has another schema for the"
            raise StateMismatch(
                f"{schema_path} {problem} collection {name!r} of the index in {state}. The schema "
                "of a collection cannot change: keep the old collection in the file, add a new one "
                "with the new schema, and copy the documents into the new one"
            )


def _write(path: Path, data: bytes) -> None:
    """Write a file unless it has these bytes already."""
    if not path.exists() or path.read_bytes() != data:
        replace_file(path, data)


def pin_searcher_count(state: Path, requested: int | None) -> int:
    """Return the number of shards of an index; at the first start, store it for later starts.

    `requested`: number of searchers; None: the existing number, or 1 at the first start.
    Precondition: `define` was called. Raises StateMismatch if the existing number differs or its
    file is damaged, Unavailable.
    """
    path = state / _SEARCHERS
    with translate_os_errors("state directory", state, STATE_DIRECTORY_HINT):
        if not path.exists():
            replace_file(path, str(requested or 1).encode())
        data = path.read_bytes()
    existing = _parse_count(data, path)
    if requested not in (None, existing):
        raise StateMismatch(
            f"the index in {state} has {existing} searchers, a number that cannot change: use "
            f"--searchers {existing}, or leave --searchers out; for another number create an index "
            "in another --state, and load the documents again"
        )
    return existing


def check_definition(state: Path) -> None:
    """Check the index definition in a state directory, if there is one; write no file.

    Raises SchemaError, StateMismatch, Unavailable.
    """
    path = state / _SEARCHERS
    with translate_os_errors("state directory", state):
        if (state / _SCHEMA).exists():
            schema_in(state)
        if path.exists():
            _parse_count(path.read_bytes(), path)


def _parse_count(data: bytes, path: Path) -> int:
    """Parse the content of the file with the number of searchers. Raises StateMismatch."""
    if not re.fullmatch(rb"[1-9]\d?", data):
        raise StateMismatch(
            f"{path} is damaged: write the number of searchers into it, as many as there are "
            f"directories {VIEW}-0, {VIEW}-1, ..."
        )
    return int(data)


# The view.


def views_of(state: Path, searchers: int) -> tuple[ViewSpec, ...]:
    """Return the views of an index: a single one, with `searchers` shards."""
    from driftline.serve.hosting.config import ViewSpec  # not needed by nodes

    return (ViewSpec(VIEW, f"{__name__}:make", searchers, {"state": str(state)}),)


def make(location: ViewLocation) -> Searcher:
    """Create a shard of the view, in a searcher process."""
    from driftline.index.searcher.searcher import Searcher  # not needed by the gateway

    schema = schema_in(Path(location.options["state"]))
    return Searcher(schema, location.directory, location.shard, location.shards)


# On a cluster.

_WHEEL_NAME, _WHEEL_VERSION = "driftline_index_flow", "1"

WHEEL_FLOW = f"{_WHEEL_NAME}:flow"
"""Name of the flow for processes that have the wheel on their path."""

_WHEEL = """Wheel-Version: 1.0
Generator: driftline
Root-Is-Purelib: true
Tag: py3-none-any
"""

_ZIP_TIMESTAMP = 1980, 1, 1, 0, 0, 0
"""Timestamp of all files in the wheel: the earliest that a zip file supports."""


def write_wheel(state: Path) -> Path:
    """Write the wheel of a state directory's index and return its path. Raises Unavailable.

    Equal schema files give equal bytes, so a restarted service uploads the wheel only if its schema
    has changed. Hosts import from the wheel without installing it, so the wheel contains only the
    module and the file WHEEL. Precondition: `define` was called.
    """
    file = state / f"{_WHEEL_NAME}-{_WHEEL_VERSION}-py3-none-any.whl"
    with translate_os_errors("state directory", state):
        files = {
            f"{_WHEEL_NAME}.py": (state / _FLOW_FILE).read_text(),
            f"{_WHEEL_NAME}-{_WHEEL_VERSION}.dist-info/WHEEL": _WHEEL,
        }
        content = BytesIO()
        with ZipFile(content, "w") as archive:
            for name, text in files.items():
                archive.writestr(ZipInfo(name, _ZIP_TIMESTAMP), text)  # uncompressed
        _write(file, content.getvalue())
    return file
