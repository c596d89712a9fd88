"""What a user names as inputs of a flow, and for which of its sources.

An input is a file, a pattern of files (`logs/*.jsonl`), a directory, an address at which records
are received (`tcp://...`), or `-` for standard input. `name=` before it says for which source it
is; it is taken so if the flow has a source of that name (otherwise it is part of a path: a file
that is called `lines=1.txt` is `./lines=1.txt` where there is a source `lines`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path

from driftline.engine.errors import FlowError, Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.sources.files.files import GENERATED, FileSource, is_known, open_source
from driftline.engine.sources.files.several import SeveralFiles
from driftline.engine.sources.record import Shape
from driftline.engine.sources.source import Source

STANDARD_INPUT = "-"

AS_IT_IS = Shape()


@dataclass(frozen=True, slots=True)
class Piped:
    """Standard input as an input: JSON lines, or lines of text."""

    shape: Shape
    is_text: bool = False
    name: str = "standard input"


Input = Source | Piped | str
"""A source that can be read again; standard input; or the address at which records are received."""


def open_inputs(flow: Flow, given: Sequence[str], shape: Shape = AS_IT_IS) -> list[Input]:
    """The input of each source of a flow, in their order.

    All `given` have names of sources or none has. Without names, all are the input of the only
    source, or there is one for each source. Raises FlowError where they do not fit the flow,
    Unavailable for what is not there, InputError.
    """
    opened = [_opened(texts, shape) for texts in _by_source(flow, given)]
    if sum(isinstance(each, Piped) for each in opened) > 1:
        raise FlowError(f"standard input ({STANDARD_INPUT}) can be the input of one source only")
    return opened


def open_given_files(flow: Flow, given: Sequence[str], shape: Shape, who: str) -> list[Source]:
    """The same for those who read only what can be read again; `who`, for people.

    Raises Unavailable besides.
    """
    return [_replayed(found, who) for found in open_inputs(flow, given, shape)]


def open_files(given: Sequence[str], shape: Shape, who: str) -> Source:
    """Files, patterns and directories as one source; others are refused as above."""
    return _replayed(_opened(given, shape), who)


def open_shaped(path: str | Path, shape: Shape) -> Source:
    """The records of one file. Raises what `open_source` raises."""
    return open_source(
        path, id_field=shape.id_field, text_field=shape.text_field, sections=shape.sections
    )


def _replayed(found: Input, who: str) -> Source:
    if isinstance(found, Piped | str):
        raise Unavailable(
            f"{who} reads files, not {found if isinstance(found, str) else found.name}: what is "
            "received by `driftline run` is in its state directory, in input-0, input-1, ..., and "
            "such a directory can be given as an input"
        )
    return found


def _by_source(flow: Flow, given: Sequence[str]) -> list[list[str]]:
    """What is given for each source of the flow. Raises FlowError."""
    names = [source.name for source in flow.sources]
    by_name: dict[str, list[str]] = {name: [] for name in names}
    unnamed = []
    for text in given:
        name, equals, rest = text.partition("=")
        if equals and name in by_name:
            by_name[name].append(rest)
        else:
            unnamed.append(text)
    there = f"flow {flow.name!r} has the sources {', '.join(names)}"
    if not unnamed:
        if missing := [name for name, found in by_name.items() if not found]:
            raise FlowError(f"no input for source {', '.join(missing)}: {there}")
        return list(by_name.values())
    if len(unnamed) < len(given):
        raise FlowError(f"the input {unnamed[0]} does not say for which source it is: {there}")
    for text in unnamed:
        name, equals, _ = text.partition("=")
        if equals and "/" not in name and not Path(text).exists() and not has_magic(text):
            raise FlowError(f"{text}: there is no source {name!r}, and no such file; {there}")
    if len(names) == 1:
        return [unnamed]
    flow.check_inputs(unnamed)
    return [[text] for text in unnamed]


def _opened(given: Sequence[str], shape: Shape) -> Input:
    """All that is given for one source, as one input."""
    if len(given) == 1 and _is_no_file(given[0]):
        return given[0] if "://" in given[0] else _piped(given[0], shape)
    paths = _paths(given)
    sources = [open_shaped(path, shape) for path in paths]
    if len(sources) == 1:
        return sources[0]
    files = [source for source in sources if isinstance(source, FileSource)]
    if len(files) < len(sources):
        raise _alone(next(p for p, s in zip(paths, sources, strict=True) if s not in files))
    return SeveralFiles(files)


def _is_no_file(text: str) -> bool:
    return "://" in text or text == STANDARD_INPUT or text.startswith(f"{STANDARD_INPUT}.")


def _alone(text: str) -> Unavailable:
    return Unavailable(f"{text} is no file: it cannot be one of several inputs of the same source")


def _piped(text: str, shape: Shape) -> Piped:
    if text not in ("-", "-.jsonl", "-.ndjson", "-.txt"):
        raise Unavailable(f"{text}: standard input is JSON lines (-, -.jsonl) or text (-.txt)")
    return Piped(shape, is_text=text == "-.txt")


def _paths(given: Sequence[str]) -> list[str]:
    """The files that are meant. Raises Unavailable for what is not there, or there twice."""
    found = [path for text in given for path in _expanded(text)]
    seen: set[Path] = set()
    for path in found:
        if (place := Path(path).resolve()) in seen:
            raise Unavailable(f"{path} is given twice for the same source")
        seen.add(place)
    return found


def _expanded(text: str) -> list[str]:
    path = Path(text)
    if _is_no_file(text):
        raise _alone(text)
    if text.startswith(GENERATED) or path.is_file():
        return [text]
    if path.is_dir() and not (path / "data.mdb").is_file():  # an input log is a source by itself
        files = sorted(
            str(file)
            for file in path.iterdir()
            if file.is_file() and not file.name.startswith(".") and is_known(file)
        )
        if not files:
            raise Unavailable(f"directory {path} has no files of a known format")
        return files
    if not path.exists() and has_magic(text):
        files = sorted(name for name in glob(text, recursive=True) if Path(name).is_file())
        if not files:
            raise Unavailable(f"{text}: no file is called so")
        return files
    return [text]
