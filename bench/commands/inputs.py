"""The documents of a benchmark: their file, and the shape of its records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from driftline.engine.errors import InputError
from driftline.engine.sources.record import Shape
from driftline.engine.sources.texts.words import words_of_text
from driftline.engine.ui.options import reading_options

if TYPE_CHECKING:
    from driftline.bench.measuring.corpus import Documents

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Corpus:
    """A file (None: the sample), and the shape of its records."""

    path: Path | None
    shape: Shape

    def load(self, count: int) -> Documents:
        """The first `count` documents. Raises UsageError if they hold no word."""
        from driftline.bench.measuring.corpus import load_documents

        try:
            documents = load_documents(count, self.path, self.shape)
        except InputError as error:
            raise click.UsageError(f"the documents of {self.path} hold no word: {error}") from None
        if not any(words_of_text(text) for _, text in documents):
            raise click.UsageError(f"the first {count} documents of {self.path} hold no word")
        return documents


def corpus_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options for its documents, as an argument `corpus` of type Corpus."""

    @click.option(
        "--input",
        "path",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Documents to index.  [default: sections of Wikipedia articles]",
    )
    @reading_options(in_sections=True)
    @wraps(command)
    def with_corpus(path: Path | None, shape: Shape, **others: object) -> R:
        return command(corpus=Corpus(path, shape), **others)

    return with_corpus


def check_warmup(documents: int, warmup: int) -> None:
    """Raises UsageError if all documents are warm-up."""
    if documents <= warmup:
        raise click.UsageError(
            f"with a warm-up of {warmup}, {documents} documents leave nothing to measure: "
            "give more --documents or a smaller --warmup"
        )
