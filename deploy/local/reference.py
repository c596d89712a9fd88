"""Runs a flow with the reference interpreter, and writes the expected outputs of a run to files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from glob import escape
from pathlib import Path
from time import monotonic

from driftline.connectors.sinks.lines import DEAD_LETTERS, JsonLines
from driftline.deploy.local.inputs.bad_records import BadRecordFile
from driftline.deploy.local.report import RunReport
from driftline.deploy.roles.consumer import DeadLetters
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.steps import FAILURES
from driftline.engine.reference import interpret
from driftline.engine.sources import BadRecord, Source, lenient, strict
from driftline.engine.texts import escape_file_name


def run_reference_to(
    flow: Flow, inputs: Sequence[Source], output: Path, dead_letters: bool
) -> RunReport:
    """Write the outputs of the reference interpreter into a directory, in the format of a run.

    Replaces the outputs of an earlier reference run. `dead_letters`: set bad records and failed
    elements aside, and log them as a run does. Raises StateMismatch for the directory of a run,
    Unavailable if the directory cannot be used, and the errors of inputs and functions.
    """
    started = monotonic()
    flow.check_inputs(inputs)
    lines = JsonLines(flow, dead_letters)
    names = {
        sink: f"{name}/reference.jsonl" if sink == FAILURES else f"{escape_file_name(name)}.jsonl"
        for sink, name in lines.names.items()
    }
    _clear(output, [*map(escape, names.values()), f"{DEAD_LETTERS}/input-*.jsonl"])
    paths = [output / DEAD_LETTERS / f"input-{i}.jsonl" for i in range(len(inputs))]
    bad_record_files = [BadRecordFile(path) for path in paths]

    def read(front: int) -> list[tuple[int, object]]:
        good: list[tuple[int, object]] = []
        records = inputs[front].read(1)
        with closing(bad_record_files[front]) as file:
            for record in (lenient if dead_letters else strict)(records):
                if isinstance(record, BadRecord):
                    file.add([record])
                else:
                    good.append(record)
        return good

    streams = [read(front) for front in range(len(inputs))]
    counts: Counter[int] = Counter()
    late: Counter[str] = Counter()
    with ExitStack() as stack:
        dead_letter_log = stack.enter_context(closing(DeadLetters(f"{output}/{DEAD_LETTERS}")))
        files = {
            sink: stack.enter_context((output / name).open("w", encoding="utf-8"))
            for sink, name in names.items()
            if sink != FAILURES
        }
        items = interpret(flow, streams, dead_letters=dead_letters, late=late)
        for item, line in map(lines.encode_item, items):
            if item.sink not in files:
                path = output / names[item.sink]
                path.parent.mkdir(exist_ok=True)
                files[item.sink] = stack.enter_context(path.open("w", encoding="utf-8"))
            files[item.sink].write(line + "\n")
            counts[item.sink] += 1
            if item.sink == FAILURES:
                files[item.sink].flush()  # before it is logged
                dead_letter_log.add_failures(monotonic(), [item])
    failures = counts.pop(FAILURES, 0)
    bad = sum(file.new for file in bad_record_files)
    return RunReport(
        sum(map(len, streams)),
        counts.total(),
        monotonic() - started,
        bad,
        failures,
        late_elements=late.total(),
    )


def _clear(output: Path, patterns: Sequence[str]) -> None:
    """Make the directory and remove the outputs of an earlier reference run.

    Raises StateMismatch for the directory of a run, Unavailable.
    """
    if (output / ".driftline").exists():
        raise StateMismatch(
            f"{output} holds the outputs of a run: give the reference another --output"
        )
    try:
        output.mkdir(parents=True, exist_ok=True)
        for pattern in patterns:
            for file in output.glob(pattern):
                file.unlink()
    except OSError as error:
        raise Unavailable(f"output {output}: {error.strerror}") from None
