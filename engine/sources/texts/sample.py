"""The text that tests and benchmarks run on: 106 articles of the English Wikipedia.

The package `gensim` contains the beginning of a dump, 1.5 MB of bzip2, for its own tests. So a `pip
install` brings the text; gensim itself is never imported.
"""

import importlib.util
from pathlib import Path

from driftline.engine.errors import Unavailable

SAMPLE = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"


def find_sample() -> Path:
    """The path of the sample. Raises Unavailable, with what to install."""
    spec = importlib.util.find_spec("gensim")
    for folder in (spec and spec.submodule_search_locations) or []:
        path = Path(folder, "test", "test_data", SAMPLE)
        if path.is_file():
            return path
    raise Unavailable(
        "the Wikipedia sample is part of the package gensim, which is not installed (or is a "
        "version without the sample): pip install driftline[bench]"
    )
