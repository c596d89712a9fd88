"""The verdict at the end of a benchmark: whether all outputs of all runs were right."""

from __future__ import annotations

from collections.abc import Iterable

import click

from driftline.engine.visible import complain


def judge(problems: Iterable[str]) -> None:
    """Print the problems; end the command with status 1 if there are any."""
    all_problems = list(problems)
    for problem in all_problems:
        complain(problem)
    if all_problems:
        click.get_current_context().exit(1)
