"""The command `driftline verify`: checks every checksum of a run's directories, and what fits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from driftline.coordinator.registry import ClusterState, FileRegistry
from driftline.deploy.host.process import wait_for_others
from driftline.deploy.run.looking import look
from driftline.deploy.run.opening import with_missing
from driftline.deploy.run.receivers import LOGGED
from driftline.deploy.run.survey import Found, problems
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.policy import POLICIES
from driftline.engine.ui.options import json_option
from driftline.engine.ui.results import write_json


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was checked, and what is wrong with it."""

    checked: list[Found]
    problems: list[str]
    note: str = ""
    """What was not checked."""


def verify_run(directory: Path, state: Path | None) -> Verdict:
    """Check an output directory with the state beneath it, or a state directory alone.

    Raises Unavailable if there is nothing to check, or a run is at work there.
    """
    output: Path | None = directory
    if state is None:
        state = directory / ".driftline" / "state"
        if (directory / "registry").exists():
            output, state = None, directory
    if state.is_dir():
        wait_for_others(state)
    wrong: list[str] = []
    registry = state / "registry"
    try:
        found = FileRegistry(registry).read()
    except StateMismatch as error:
        found = None
        wrong.append(str(error))
    checked = look(state, output)
    if not checked and not registry.exists():
        raise Unavailable(f"{directory} holds neither outputs nor the state of a run")
    if not wrong:
        wrong = _not_fitting(registry, found, checked, state, output)
    else:
        wrong += [here.damage for here in checked if here.damage]
    note = ""
    if not state.is_dir():
        note = f"no state was checked: {state} is not there; if it is elsewhere, give --state DIR"
    return Verdict(checked, wrong, note)


def _not_fitting(
    registry: Path,
    found: ClusterState | None,
    checked: list[Found],
    state: Path,
    output: Path | None,
) -> list[str]:
    if found is None and not state.is_dir():  # outputs whose state is elsewhere
        return [here.damage for here in checked if here.damage]
    policy = POLICIES["exactly-once"]
    if found is not None:
        _, name, nodes, *inputs = found.identity.split("|")
        policy = POLICIES[name]
        logs = [i for i, source in enumerate(inputs) if source in LOGGED]
        checked = with_missing(checked, state, output, int(nodes), logs)
    return [problem.text for problem in problems(policy, str(registry), found, checked)]


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--state", type=click.Path(path_type=Path, exists=True, file_okay=False),
              metavar="DIR", help="The state directory, if it is not beneath the outputs.",
              )  # fmt: skip
@json_option
def verify(directory: Path, state: Path | None, json_file: Path | None) -> int:
    """Check the outputs of a run in DIRECTORY, and its state: all checksums, and what fits.

    Nothing is changed. Exit status 0: all is right; 1: something is not.
    """
    verdict = verify_run(directory, state)
    for here in verdict.checked:
        click.echo(f"{'DAMAGED' if here.damage else 'ok':7}  {here}: {here.holds or 'unreadable'}")
    for told in filter(None, [*verdict.problems, verdict.note]):
        click.echo(told)
    checked = [
        {"part": here.part, "path": here.path, "holds": here.holds, "damage": here.damage}
        for here in verdict.checked
    ]
    write_json(json_file, {"checked": checked, "problems": verdict.problems, "note": verdict.note})
    return 1 if verdict.problems else 0
