"""Opens the inputs that a user names for the sources of a flow.

An input is a file, a pattern of files (`logs/*.jsonl`), a directory, N generated documents
(`zipf:N`), an address to which producers send records (`tcp://...`, `ipc://...`), standard input
(`-` or `-.jsonl` for JSON lines, `-.txt` for text), or the address of a connector
(`python:shop.py:orders`, see `connectors.registry`).

A prefix `name=` assigns the input to the source of that name. If the flow has no source `lines`,
`lines=1.txt` is a file name. If it has one, the user gives this file as `./lines=1.txt`.
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
from driftline.engine.sources.record import DEFAULT_FORMAT, UTF_8, RecordFormat
from driftline.engine.sources.source import Source

STANDARD_INPUT = "-"

PRODUCER_PREFIXES = "tcp://", "ipc://"
"""Prefixes of the addresses at which a run receives records from producers."""

NAME_BYTES_MAX = 255
"""Maximum bytes of a file name; system calls reject longer ones."""

NAMES_SHOWN = 10
"""Maximum number of directory entries that a warning names."""


class PipedInput(Struct, frozen=True):
    """Standard input as an input: JSON lines, or lines of text."""

    record_format: RecordFormat
    is_text: bool = False
    name: str = "standard input"


Input = Source | LiveSource | PipedInput | str
"""A source that can be read again; a live source; standard input; or an address for producers."""


def open_inputs(
    flow: Flow, arguments: Sequence[str], record_format: RecordFormat = DEFAULT_FORMAT
) -> list[Input]:
    """Return the input of each source of a flow, in the order of the sources.

    `arguments`: inputs as the user names them, either all with a prefix `name=` or all without.
    Without prefixes, a flow with one source reads all inputs; other flows need one input for each
    source. Raises FlowError if the inputs do not fit the flow, Unavailable if a file is missing,
    InputError if an XML file is empty, and the errors of a connector.
    """
    inputs = [_open(texts, record_format) for texts in inputs_by_source(flow, arguments)]
    if sum(isinstance(each, PipedInput) for each in inputs) > 1:
        raise FlowError(f"standard input ({STANDARD_INPUT}) can be the input of one source only")
    return inputs


def open_one_input(
    flow: Flow, arguments: Sequence[str], number: int, record_format: RecordFormat
) -> Input:
    """Return the input of source `number`; the files of other sources may be on other machines.

    Raises the errors of `open_inputs`.
    """
    return _open(inputs_by_source(flow, arguments)[number], record_format)


def open_rereadable_inputs(
    flow: Flow, arguments: Sequence[str], record_format: RecordFormat, reader: str
) -> list[Source]:
    """Return the inputs as `open_inputs` does, for a reader that needs records it can read again.

    `reader`: the reader's name, for errors. Raises the errors of `open_inputs`, and Unavailable for
    an input whose records cannot be read again.
    """
    return [
        _require_rereadable(each, reader) for each in open_inputs(flow, arguments, record_format)
    ]


def open_files(arguments: Sequence[str], record_format: RecordFormat, reader: str) -> Source:
    """Open files, patterns and directories as one source.

    Raises the errors of `open_rereadable_inputs`.
    """
    return _require_rereadable(_open(arguments, record_format), reader)


def open_with_format(path: str | Path, record_format: RecordFormat) -> Source:
    """Open one file. Raises the errors of `open_source`."""
    return open_source(
        path,
        id_field=record_format.id_field,
        text_field=record_format.text_field,
        sections=record_format.sections,
        encoding=record_format.encoding,
        delimiter=record_format.delimiter,
    )


def is_named_address(argument: str) -> bool:
    """Return whether the input in `NAME=INPUT` has a scheme; files and standard input have none."""
    return bool(scheme_of(argument.partition("=")[2]))


def needs_input_log(flow_input: object) -> bool:
    """Return whether an input needs an input log, because its records cannot be read again."""
    return isinstance(flow_input, LiveSource | PipedInput | str)


def _require_rereadable(flow_input: Input, reader: str) -> Source:
    if isinstance(flow_input, LiveSource | PipedInput | str):
        name = flow_input if isinstance(flow_input, str) else flow_input.name
        raise Unavailable(
            f"{reader} cannot use {name}, whose records cannot be read again. `driftline run` "
            "stores received records in its state directory, in the folders input-0, input-1, ..., "
            "which can be inputs; but it removes the records once two snapshots cover them. To "
            "keep all records, write them to a sink of the flow, or keep a copy in the system that "
            "sends them"
        )
    return flow_input


def inputs_by_source(flow: Flow, arguments: Sequence[str]) -> list[list[str]]:
    """Return the inputs given for each source of the flow, without names. Raises FlowError."""
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
    available = f"flow {flow.name!r} has the source{'s' * (len(names) > 1)} {', '.join(names)}"
    if not unnamed:
        if missing := [name for name, texts in by_name.items() if not texts]:
            raise FlowError(f"no input for source {', '.join(missing)}: {available}")
        return list(by_name.values())
    for text in unnamed:
        name, equals, _ = text.partition("=")
        if equals and "/" not in name and not Path(text).exists() and not has_magic(text):
            raise FlowError(f"{text}: there is no source {name!r}, and no such file; {available}")
    if len(unnamed) < len(arguments):
        raise FlowError(f"the input {unnamed[0]} does not name a source of the flow: {available}")
    if len(names) == 1:
        return [unnamed]
    flow.check_inputs(unnamed)
    return [[text] for text in unnamed]


def _open(arguments: Sequence[str], record_format: RecordFormat) -> Input:
    """Open the input of a source from all texts given for it."""
    if len(arguments) == 1 and _is_stream(arguments[0]):
        address = arguments[0]
        if address.startswith(PRODUCER_PREFIXES):
            return address
        return open_address(address) if scheme_of(address) else _open_pipe(address, record_format)
    paths = _paths(arguments)
    sources = [open_with_format(path, record_format) for path in paths]
    if len(sources) == 1:
        return sources[0]
    files = [source for source in sources if isinstance(source, FileSource)]
    if len(files) < len(sources):
        raise _not_a_file(next(p for p, s in zip(paths, sources, strict=True) if s not in files))
    return SeveralFiles(files)


def _is_stream(text: str) -> bool:
    """Return whether an input is an address or standard input, not a file."""
    return bool(scheme_of(text)) or text == STANDARD_INPUT or text.startswith(f"{STANDARD_INPUT}.")


def _not_a_file(text: str) -> Unavailable:
    return Unavailable(
        f"{text} is not a file: it cannot be one of several inputs of the same source"
    )


def _open_pipe(text: str, record_format: RecordFormat) -> PipedInput:
    if text not in ("-", "-.jsonl", "-.ndjson", "-.txt"):
        raise Unavailable(f"{text}: standard input is JSON lines (-, -.jsonl) or text (-.txt)")
    if record_format.encoding != UTF_8:
        raise Unavailable(
            f"{text}: --encoding {record_format.encoding} is for files; convert standard input to "
            "UTF-8, for example with iconv"
        )
    return PipedInput(record_format, is_text=text == "-.txt")


def _paths(arguments: Sequence[str]) -> list[str]:
    """Return the files that the arguments name.

    Raises Unavailable if a pattern or a directory has no files, or if a file is named twice. A
    missing file raises only when it is opened.
    """
    paths = [path for text in arguments for path in _expand(text)]
    seen: set[str] = set()
    for path in paths:
        if (real := realpath(path)) in seen:
            raise Unavailable(f"{path} is given twice for the same source")
        seen.add(real)
    return paths


def _expand(text: str) -> list[str]:
    path = Path(text)
    if _is_stream(text):
        raise _not_a_file(text)
    if len(path.name.encode(errors="surrogatepass")) > NAME_BYTES_MAX:
        raise Unavailable(f"{text[:40]}...: a file name has at most {NAME_BYTES_MAX} bytes")
    if text.startswith(GENERATED) or path.is_file():
        return [text]
    if path.is_dir() and not is_log(path):  # the folder of an input log is one source
        entries = sorted(file for file in path.iterdir() if not file.name.startswith("."))
        files = [str(file) for file in entries if not _why_skipped(file)]
        _log_skipped(f"directory {path}", entries)
        if not files:
            raise Unavailable(f"directory {path} has no files of a known format")
        return files
    if not path.exists() and has_magic(text):
        matches = [Path(name) for name in sorted(glob(text, recursive=True))]
        files = [str(match) for match in matches if match.is_file()]
        _log_skipped(text, [m for m in matches if not (m.is_file() or m.is_dir())])
        if not files:
            raise Unavailable(f"{text}: no file matches this pattern")
        return files
    return [text]


def _log_skipped(pattern: str, entries: Iterable[Path]) -> None:
    """Log the entries of a directory or pattern that are not part of the input."""
    skipped = [f"{e.name} ({reason})" for e in entries if (reason := _why_skipped(e))]
    if skipped:
        more = f" and {len(skipped) - NAMES_SHOWN} more" * (len(skipped) > NAMES_SHOWN)
        names = f"{', '.join(skipped[:NAMES_SHOWN])}{more}"
        fields = event_fields("files-skipped", input=pattern, names=names, count=len(skipped))
        log.warning("%s: skipped %s", pattern, names, extra=fields)


def _why_skipped(entry: Path) -> str:
    """Return why an entry of a directory is not part of the input, in words; "" if it is."""
    if entry.is_file():
        return "" if has_known_format(entry) else "no known format"
    if entry.is_dir():
        return "a directory"
    return "not a regular file" if entry.exists() else "a link to a file that is missing"
