"""The real text that tests and the benchmark run on: 106 articles of the English Wikipedia.

The `gensim` package ships the beginning of a dump, 1.5 MB of bzip2, for tests of its own. So a
`pip install` is enough to have it; gensim itself is never imported.
"""

import importlib.util
from pathlib import Path

from driftline.engine.errors import Unavailable

SAMPLE = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"


def find_sample() -> Path:
    """Where the sample lies. Raises Unavailable, saying what to install."""
    spec = importlib.util.find_spec("gensim")
    for folder in (spec and spec.submodule_search_locations) or []:
        path = Path(folder, "test", "test_data", SAMPLE)
        if path.is_file():
            return path
    raise Unavailable(
        "the Wikipedia sample comes with the package gensim, which is not installed (or lacks it): "
        "pip install driftline[bench]"
    )
