"""Inverted index: the flow of the paper's experiments (section VI-A), ready to run.

driftline run driftline.index --input articles.jsonl --output changes
"""

from driftline.index.flow import flow

__all__ = ["flow"]
