"""The flow of an index as a wheel, which is sent to the hosts of a cluster.

In it is one module, with the schema, that makes the flow. Hosts import from the file, and install
nothing, so it has no more of a wheel than they look at. The same schema gives the same bytes: so a
service that is started again sends nothing new.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from driftline.engine.durable import replace_file, reported
from driftline.index.serving.definition import schema_file

_NAME, _VERSION = "driftline_index_flow", "1"

FLOW = f"{_NAME}:flow"
"""The name of the flow, for whoever has the wheel on its path."""

_MODULE = '''"""Makes the flow of an index, by its schema. Written by Driftline."""

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

_WHEN = 1980, 1, 1, 0, 0, 0
"""The time of all files: the earliest that a zip can have."""


def write_wheel(state: Path) -> Path:
    """Write the wheel of the index that a state directory defines. Returns its file; raises
    Unavailable."""
    file = state / f"{_NAME}-{_VERSION}-py3-none-any.whl"
    with reported("state directory", state):
        given = schema_file(state)
        data = wheel_of(given.read_bytes() if given.exists() else None)
        if not file.exists() or file.read_bytes() != data:
            replace_file(file, data)
    return file


def wheel_of(schema: bytes | None) -> bytes:
    """The bytes of the wheel; `schema`: the text of its file, None for the default."""
    files = {
        f"{_NAME}.py": _MODULE.format(schema=schema),
        f"{_NAME}-{_VERSION}.dist-info/WHEEL": _WHEEL,
    }
    made = BytesIO()
    with ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(ZipInfo(name, _WHEN), text)  # stored as it is
    return made.getvalue()
