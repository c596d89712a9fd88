"""Definition of a served index: its schema and flow, stored in the state directory.

All processes of a service load its flow by name. The flow of an index depends on its schema. So the
state directory contains the schema, and a module with the same schema, which builds the flow. Nodes
and master import that module. On a cluster, a wheel with it is sent to all hosts.
"""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile, ZipInfo

from driftline.deploy.runtime.claims import ANOTHER_STATE, claim
from driftline.engine.durable import make_directory, replace_file, translate_os_errors
from driftline.engine.errors import StateMismatch
from driftline.index.documents.schema import DEFAULT_FILE, Schema, load_schema

if TYPE_CHECKING:
    from driftline.index.searcher.searcher import Searcher
    from driftline.serve.hosting.config import ViewLocation, ViewSpec

VIEW = "documents"
"""Name of the view of an index."""

_SCHEMA, _FLOW_FILE, _SEARCHERS = "schema.toml", "index_flow.py", "searchers"

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
    """Define the index of a state directory, extend it by collections, or check that it matches.

    `schema_path`: schema file; None: the existing schema, or the default one. Returns the name of
    the flow, as `load_flow` expects it.
    Raises SchemaError, StateMismatch if the schema of an existing collection differs or the schema
    is gone, InUse if the index is running, Unavailable.
    """
    with translate_os_errors("state directory", state, ANOTHER_STATE):
        if (state / _SCHEMA).exists():
            if schema_path is not None:
                _extend(state, schema_path)
        else:
            _create(state, schema_path)
        _write(state / _FLOW_FILE, _MODULE.format(schema=(state / _SCHEMA).read_bytes()).encode())
    return f"{state / _FLOW_FILE}:flow"


def _create(state: Path, given: Path | None) -> None:
    if (state / _FLOW_FILE).exists():
        raise StateMismatch(
            f"{state / _SCHEMA}, the schema file of the index, is missing: restore it from a copy"
        )
    if given is not None:
        load_schema(given)
    make_directory(state)
    replace_file(state / _SCHEMA, DEFAULT_FILE if given is None else given.read_bytes())


def _extend(state: Path, given: Path) -> None:
    schema, before = load_schema(given), schema_in(state)
    _check_unchanged(before, schema, given, state)
    if schema.fingerprint() != before.fingerprint():
        # The service must be stopped: running processes do not read the schema again.
        alone = claim(state / "run.lock")
        try:
            replace_file(state / _SCHEMA, given.read_bytes())
        finally:
            alone.release()


def _check_unchanged(before: Schema, schema: Schema, given: Path, state: Path) -> None:
    """Raise StateMismatch unless all existing collections are unchanged."""
    for name, collection in before.collections.items():
        there = schema.collections.get(name)
        if there is None or there.fingerprint() != collection.fingerprint():
            what = "has no" if there is None else "has another schema for the"
            raise StateMismatch(
                f"{given} {what} collection {name!r} of the index in {state}. The schema of a "
                "collection cannot change: keep it, add a new collection with the new schema, and "
                "copy the documents into that"
            )


def _write(path: Path, data: bytes) -> None:
    """Write a file unless it has these bytes already."""
    if not path.exists() or path.read_bytes() != data:
        replace_file(path, data)


def pin_searcher_count(state: Path, requested: int | None) -> int:
    """Return the number of shards of an index, which is fixed at its first start.

    `requested`: number of searchers; None: the existing number, or 1 at the first start.
    Precondition: `define` was called. Raises StateMismatch if the existing number differs,
    Unavailable.
    """
    path = state / _SEARCHERS
    with translate_os_errors("state directory", state, ANOTHER_STATE):
        if not path.exists():
            replace_file(path, str(requested or 1).encode())
        data = path.read_bytes()
    there = _number_in(data, path)
    if requested not in (None, there):
        raise StateMismatch(
            f"the index in {state} has {there} searchers, a number that cannot change: give "
            f"--searchers {there}, or leave it out; for another number create an index in another "
            "--state, and load the documents again"
        )
    return there


def check_definition(state: Path) -> None:
    """Check the index definition in a state directory, if there is one; write no file.

    Raises SchemaError, StateMismatch, Unavailable.
    """
    path = state / _SEARCHERS
    with translate_os_errors("state directory", state):
        if (state / _SCHEMA).exists():
            schema_in(state)
        if path.exists():
            _number_in(path.read_bytes(), path)


def _number_in(data: bytes, path: Path) -> int:
    """Parse the number of searchers in a file. Raises StateMismatch."""
    if not re.fullmatch(rb"[1-9]\d?", data):
        raise StateMismatch(
            f"{path} is damaged: write the number of searchers into it, as many as there are "
            f"directories {VIEW}-0, {VIEW}-1, ..."
        )
    return int(data)


# The view.


def views_of(state: Path, searchers: int) -> tuple[ViewSpec, ...]:
    """Return the only view of an index; `searchers`: its number of shards."""
    from driftline.serve.hosting.config import ViewSpec  # not needed by nodes

    return (ViewSpec(VIEW, f"{__name__}:make", searchers, {"state": str(state)}),)


def make(place: ViewLocation) -> Searcher:
    """Create a shard of the view."""
    from driftline.index.searcher.searcher import Searcher  # not needed by the gateway

    schema = schema_in(Path(place.options["state"]))
    return Searcher(schema, place.directory, place.shard, place.shards)


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

    Equal schemas give equal bytes, so a restarted service uploads the wheel only if its schema has
    changed. Hosts import from the wheel without installing it, so it has only the files that this
    needs. Precondition: `define` was called.
    """
    file = state / f"{_WHEEL_NAME}-{_WHEEL_VERSION}-py3-none-any.whl"
    with translate_os_errors("state directory", state):
        files = {
            f"{_WHEEL_NAME}.py": (state / _FLOW_FILE).read_text(),
            f"{_WHEEL_NAME}-{_WHEEL_VERSION}.dist-info/WHEEL": _WHEEL,
        }
        made = BytesIO()
        with ZipFile(made, "w") as archive:
            for name, text in files.items():
                archive.writestr(ZipInfo(name, _ZIP_TIMESTAMP), text)  # uncompressed
        _write(file, made.getvalue())
    return file
