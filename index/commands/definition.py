"""Definition of a served index: its schema and flow, stored in the state directory.

All processes of a service load its flow by name. The flow of an index depends on its schema, so the
state directory contains the schema and a module that builds the flow from it. Master and nodes
import this module, so it imports neither search nor HTTP code.
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
from driftline.engine.events import log
from driftline.index.documents.schema import DEFAULT, Schema, load_schema

if TYPE_CHECKING:
    from driftline.index.searcher.searcher import Searcher
    from driftline.serve.hosting.config import ViewLocation, ViewSpec

VIEW = "documents"
"""Name of the view of an index."""

_SCHEMA, _FLOW_FILE, _SEARCHERS = "schema.toml", "index_flow.py", "searchers"

_MODULE = '''"""Makes the flow of the index, by its schema. Written by Driftline."""

from pathlib import Path

from driftline.index.documents.writes import document_flow
from driftline.index.commands.definition import schema_in

flow = document_flow(schema_in(Path(__file__).parent))
'''

_FINGERPRINT_MARKER = f"\n# {_SCHEMA} belongs to it: "
"""Marker in the module, before the fingerprint of the schema at the last start."""


def schema_file(state: Path) -> Path:
    """Return the path of the schema in a state directory; the default schema has no file."""
    return state / _SCHEMA


def schema_in(state: Path) -> Schema:
    """Return the schema of the index in a state directory. Raises SchemaError."""
    path = schema_file(state)
    return load_schema(path) if path.exists() else DEFAULT


def define(state: Path, schema_path: Path | None) -> str:
    """Define the index of a state directory, extend it by collections, or check that it matches.

    `schema_path`: schema file; None: the existing schema, or the default one. Returns the name of
    the flow, as `load_flow` expects it.
    Raises SchemaError, StateMismatch if the schema of an existing collection differs, InUse if the
    index is running, Unavailable.
    """
    with translate_os_errors("state directory", state, ANOTHER_STATE):
        _check_schema_exists(state, schema_path)
        if schema_path is not None:
            _use_schema(schema_path, state)
        module = _module(state)
        if not (state / _FLOW_FILE).exists() or (state / _FLOW_FILE).read_bytes() != module:
            make_directory(state)
            replace_file(state / _FLOW_FILE, module)
    return f"{state / _FLOW_FILE}:flow"


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
            f"the index in {state} has {there} searchers, and their number stays: give "
            f"--searchers {there}, or leave it out; for another number begin a new --state, and "
            "fill it with the documents of this one"
        )
    return there


def check_definition(state: Path) -> None:
    """Check the index definition in a state directory, if there is one; write no file.

    Raises SchemaError, StateMismatch, Unavailable.
    """
    path = state / _SEARCHERS
    with translate_os_errors("state directory", state):
        if schema_file(state).exists():
            load_schema(schema_file(state))
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


def _module(state: Path) -> bytes:
    """Return the module that builds the flow; it contains the fingerprint of the schema file."""
    mark = ""
    if schema_file(state).exists():
        mark = f"{_FINGERPRINT_MARKER}{schema_in(state).fingerprint()}\n"
    return (_MODULE + mark).encode()


def _fingerprint_before(state: Path) -> str:
    """Return the fingerprint of the schema file at the last start; "" if it had no file."""
    data = (state / _FLOW_FILE).read_bytes() if (state / _FLOW_FILE).exists() else b""
    return data.decode(errors="replace").partition(_FINGERPRINT_MARKER)[2].strip()


def _check_schema_exists(state: Path, given: Path | None) -> None:
    """Raise StateMismatch if the schema file was removed and `given` does not replace it."""
    before = _fingerprint_before(state)
    if not before or schema_file(state).exists():
        return
    if given is None or load_schema(given).fingerprint() != before:
        what = "" if given is None else f", and {given} has another one"
        raise StateMismatch(
            f"{schema_file(state)} is gone, the schema of the index{what}: restore it from a copy, "
            "or give the same schema again with --schema FILE"
        )
    log.warning("%s is gone, and is made again of %s", schema_file(state), given)


def _use_schema(given: Path, state: Path) -> None:
    schema, before = load_schema(given), None
    if schema_file(state).exists() or (
        (state / _FLOW_FILE).exists() and not _fingerprint_before(state)
    ):
        before = schema_in(state)
        _check_unchanged(before, schema, given, state)
    if before is None or schema.fingerprint() != before.fingerprint():
        alone = claim(state / "run.lock")  # running processes have already read the schema
        try:
            replace_file(schema_file(state), given.read_bytes())
        finally:
            alone.release()


def _check_unchanged(before: Schema, schema: Schema, given: Path, state: Path) -> None:
    """Raise StateMismatch unless all existing collections are unchanged."""
    for name, collection in before.collections.items():
        there = schema.collections.get(name)
        if there is None or there.fingerprint() != collection.fingerprint():
            what = "has no" if there is None else "has another schema for the"
            raise StateMismatch(
                f"{given} {what} collection {name!r} of the index in {state}, and a collection "
                "keeps its schema: leave it as it is, add a collection with the new one, and fill "
                "that from the old one's documents"
            )


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
#
# The wheel contains one module, which contains the schema and builds the flow. Hosts import from
# the wheel without installing it, so it has only the files that this needs. Equal schemas give
# equal bytes, so a restarted service uploads the wheel only if its schema has changed.

_WHEEL_NAME, _WHEEL_VERSION = "driftline_index_flow", "1"

WHEEL_FLOW = f"{_WHEEL_NAME}:flow"
"""Name of the flow for processes that have the wheel on their path."""

_WHEEL_MODULE = '''"""Makes the flow of an index, by its schema. Written by Driftline."""

from driftline.index.documents.schema import DEFAULT, read_schema
from driftline.index.documents.writes import document_flow

SCHEMA: bytes | None = {schema!r}

flow = document_flow(DEFAULT if SCHEMA is None else read_schema(SCHEMA, "the schema of the index"))
'''

_WHEEL = """Wheel-Version: 1.0
Generator: driftline
Root-Is-Purelib: true
Tag: py3-none-any
"""

_ZIP_TIMESTAMP = 1980, 1, 1, 0, 0, 0
"""Timestamp of all files in the wheel: the earliest that a zip file supports."""


def write_wheel(state: Path) -> Path:
    """Write the wheel of a state directory's index and return its path. Raises Unavailable."""
    file = state / f"{_WHEEL_NAME}-{_WHEEL_VERSION}-py3-none-any.whl"
    with translate_os_errors("state directory", state):
        given = schema_file(state)
        data = wheel_of(given.read_bytes() if given.exists() else None)
        if not file.exists() or file.read_bytes() != data:
            replace_file(file, data)
    return file


def wheel_of(schema: bytes | None) -> bytes:
    """Return the bytes of the wheel.

    `schema`: content of the schema file; None: the default schema.
    """
    files = {
        f"{_WHEEL_NAME}.py": _WHEEL_MODULE.format(schema=schema),
        f"{_WHEEL_NAME}-{_WHEEL_VERSION}.dist-info/WHEEL": _WHEEL,
    }
    made = BytesIO()
    with ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(ZipInfo(name, _ZIP_TIMESTAMP), text)  # uncompressed
    return made.getvalue()
