"""The verdict at the end of a benchmark: whether all outputs of all runs were right."""

from __future__ import annotations

from collections.abc import Iterable

import click


def judge(problems: Iterable[str]) -> None:
    """Print the problems; end the command with status 1 if there are any."""
    all_problems = list(problems)
    for problem in all_problems:
        click.echo(f"driftline: {problem}", err=True)
    if all_problems:
        click.get_current_context().exit(1)
