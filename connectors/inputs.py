"""Opens the inputs that a user names for the sources of a flow.

An input is a file, a pattern of files (`logs/*.jsonl`), a directory, an address to receive records
at (`tcp://...`), `-` for standard input, or the address of a connector (`python:shop.py:orders`,
see `connectors.registry`). A prefix `name=` assigns the input to the source of that name. If the
flow has no such source, the prefix is part of a path; if it has a source `lines`, a file
`lines=1.txt` has to be given as `./lines=1.txt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from glob import glob, has_magic
from os.path import realpath
from pathlib import Path

from msgspec import Struct

from driftline.connectors.files.files import (
    GENERATED,
    FileSource,
    SeveralFiles,
    has_known_format,
    open_source,
)
from driftline.connectors.live import LiveSource
from driftline.connectors.logs.inputlog import is_log
from driftline.connectors.registry import open_source as open_address
from driftline.connectors.registry import scheme_of
from driftline.engine.errors import FlowError, Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.flow.flow import Flow
from driftline.engine.sources.record import DEFAULT_SHAPE, UTF_8, Shape
from driftline.engine.sources.source import Source

STANDARD_INPUT = "-"

PRODUCERS = "tcp://", "ipc://"
"""Prefixes of the addresses at which a run receives records of producers."""

NAME_BYTES_MAX = 255
"""Maximum bytes of a file name; system calls reject longer ones."""

NAMES_SHOWN = 10
"""Maximum number of directory entries that a warning names."""


class Piped(Struct, frozen=True):
    """Standard input as an input: JSON lines, or lines of text."""

    shape: Shape
    is_text: bool = False
    name: str = "standard input"


Input = Source | LiveSource | Piped | str
"""A source that can be read again; a live source; standard input; or an address of producers."""


def open_inputs(flow: Flow, arguments: Sequence[str], shape: Shape = DEFAULT_SHAPE) -> list[Input]:
    """Return the input of each source of a flow, in the order of the sources.

    `arguments`: inputs as the user names them, all with the names of sources, or all without.
    Without names, a flow with one source reads all inputs; other flows need one input for each
    source. Raises FlowError if they do not fit the flow, Unavailable if a file is missing,
    InputError.
    """
    inputs = [_open(texts, shape) for texts in inputs_by_source(flow, arguments)]
    if sum(isinstance(each, Piped) for each in inputs) > 1:
        raise FlowError(f"standard input ({STANDARD_INPUT}) can be the input of one source only")
    return inputs


def open_one_input(flow: Flow, arguments: Sequence[str], number: int, shape: Shape) -> Input:
    """Return the input of one source; the files of other sources may be on other machines.

    Raises the errors of `open_inputs`.
    """
    return _open(inputs_by_source(flow, arguments)[number], shape)


def open_given_files(
    flow: Flow, arguments: Sequence[str], shape: Shape, reader: str
) -> list[Source]:
    """Return `open_inputs` for a reader that needs files. `reader`: the reader's name, for errors.

    Raises the errors of `open_inputs`, and Unavailable for an input that is not a file.
    """
    return [_as_files(each, reader) for each in open_inputs(flow, arguments, shape)]


def open_files(arguments: Sequence[str], shape: Shape, reader: str) -> Source:
    """Open files, patterns and directories as one source.

    Raises the errors of `open_given_files`.
    """
    return _as_files(_open(arguments, shape), reader)


def open_shaped(path: str | Path, shape: Shape) -> Source:
    """Open one file. Raise the errors of `open_source`."""
    return open_source(
        path,
        id_field=shape.id_field,
        text_field=shape.text_field,
        sections=shape.sections,
        encoding=shape.encoding,
        delimiter=shape.delimiter,
    )


def is_live(named: str) -> bool:
    """Return whether an input, as `NAME=INPUT`, is an address, so records arrive during the run."""
    return bool(scheme_of(named.partition("=")[2]))


def is_logged(opened: object) -> bool:
    """Return whether an input needs an input log, because its records cannot be read again."""
    return isinstance(opened, LiveSource | Piped | str)


def _as_files(opened: Input, reader: str) -> Source:
    if isinstance(opened, LiveSource | Piped | str):
        raise Unavailable(
            f"{reader} reads files, not {opened if isinstance(opened, str) else opened.name}. "
            "`driftline run` keeps the records that it receives in its state directory, in the "
            "folders input-0, input-1, ..., which can be inputs; but only until two snapshots have "
            "them. Let a sink of the flow keep all of them, or keep them where they come from"
        )
    return opened


def inputs_by_source(flow: Flow, arguments: Sequence[str]) -> list[list[str]]:
    """Return the texts given for each source of the flow, without names. Raise FlowError."""
    names = [source.name for source in flow.sources]
    by_name: dict[str, list[str]] = {name: [] for name in names}
    unnamed = []
    for text in arguments:
        name, equals, rest = text.partition("=")
        if not text or (name in by_name and equals and not rest):
            raise FlowError(f"--input {text or repr(text)}: the input is empty")
        if equals and name in by_name:
            by_name[name].append(rest)
        else:
            unnamed.append(text)
    known = f"flow {flow.name!r} has the source{'s' * (len(names) > 1)} {', '.join(names)}"
    if not unnamed:
        if missing := [name for name, texts in by_name.items() if not texts]:
            raise FlowError(f"no input for source {', '.join(missing)}: {known}")
        return list(by_name.values())
    if len(unnamed) < len(arguments):
        raise FlowError(f"the input {unnamed[0]} does not name a source of the flow: {known}")
    for text in unnamed:
        name, equals, _ = text.partition("=")
        if equals and "/" not in name and not Path(text).exists() and not has_magic(text):
            raise FlowError(f"{text}: there is no source {name!r}, and no such file; {known}")
    if len(names) == 1:
        return [unnamed]
    flow.check_inputs(unnamed)
    return [[text] for text in unnamed]


def _open(arguments: Sequence[str], shape: Shape) -> Input:
    """Open the input of a source from all texts given for it."""
    if len(arguments) == 1 and _is_no_file(arguments[0]):
        address = arguments[0]
        if address.startswith(PRODUCERS):
            return address
        return open_address(address) if scheme_of(address) else _piped(address, shape)
    paths = _paths(arguments)
    sources = [open_shaped(path, shape) for path in paths]
    if len(sources) == 1:
        return sources[0]
    files = [source for source in sources if isinstance(source, FileSource)]
    if len(files) < len(sources):
        raise _alone(next(p for p, s in zip(paths, sources, strict=True) if s not in files))
    return SeveralFiles(files)


def _is_no_file(text: str) -> bool:
    return bool(scheme_of(text)) or text == STANDARD_INPUT or text.startswith(f"{STANDARD_INPUT}.")


def _alone(text: str) -> Unavailable:
    return Unavailable(
        f"{text} is not a file: it cannot be one of several inputs of the same source"
    )


def _piped(text: str, shape: Shape) -> Piped:
    if text not in ("-", "-.jsonl", "-.ndjson", "-.txt"):
        raise Unavailable(f"{text}: standard input is JSON lines (-, -.jsonl) or text (-.txt)")
    if shape.encoding != UTF_8:
        raise Unavailable(
            f"{text}: --encoding {shape.encoding} is for files; convert standard input to UTF-8, "
            "for example with iconv"
        )
    return Piped(shape, is_text=text == "-.txt")


def _paths(arguments: Sequence[str]) -> list[str]:
    """Return the files that the texts name.

    Raises Unavailable if one is missing or named twice.
    """
    paths = [path for text in arguments for path in _expanded(text)]
    seen: set[str] = set()
    for path in paths:
        if (real := realpath(path)) in seen:
            raise Unavailable(f"{path} is given twice for the same source")
        seen.add(real)
    return paths


def _expanded(text: str) -> list[str]:
    path = Path(text)
    if _is_no_file(text):
        raise _alone(text)
    if len(path.name.encode(errors="surrogatepass")) > NAME_BYTES_MAX:
        raise Unavailable(f"{text[:40]}...: no file has so long a name")
    if text.startswith(GENERATED) or path.is_file():
        return [text]
    if path.is_dir() and not is_log(path):  # the folder of an input log is one source
        entries = sorted(file for file in path.iterdir() if not file.name.startswith("."))
        files = [str(file) for file in entries if not _why_left_out(file)]
        _log_left_out(f"directory {path}", entries)
        if not files:
            raise Unavailable(f"directory {path} has no files of a known format")
        return files
    if not path.exists() and has_magic(text):
        matches = [Path(name) for name in sorted(glob(text, recursive=True))]
        files = [str(match) for match in matches if match.is_file()]
        _log_left_out(text, [m for m in matches if not (m.is_file() or m.is_dir())])
        if not files:
            raise Unavailable(f"{text}: no file matches this pattern")
        return files
    return [text]


def _log_left_out(where: str, entries: Iterable[Path]) -> None:
    """Log the entries of a directory or pattern that are not part of the input."""
    left_out = [f"{e.name} ({why})" for e in entries if (why := _why_left_out(e))]
    if left_out:
        more = f" and {len(left_out) - NAMES_SHOWN} more" * (len(left_out) > NAMES_SHOWN)
        names = f"{', '.join(left_out[:NAMES_SHOWN])}{more}"
        fields = event_fields("files-skipped", input=where, names=names, count=len(left_out))
        log.warning("%s: skipped %s", where, names, extra=fields)


def _why_left_out(entry: Path) -> str:
    """Return why an entry of a directory is not part of the input, in words; empty if it is."""
    if entry.is_file():
        return "" if has_known_format(entry) else "no known format"
    if entry.is_dir():
        return "a directory"
    return "no regular file" if entry.exists() else "a link to a file that is missing"
