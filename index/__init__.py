"""Inverted index: a flow that is ready to run.

The paper "Delivery, consistency, and determinism" uses it in its experiments (section VI-A).

driftline run driftline.index --input articles.jsonl --output changes
"""

from driftline.index.flow import flow

__all__ = ["flow"]
