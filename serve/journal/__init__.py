"""The journal: all outputs of a flow in label order, durable, and retained.

journal = Journal(Path("journal"), flow, identity)
journal.followers.append(follower.take)  # each span, before it is stored
journal.deliver(bundle)  # of any barrier; returns when it is durable
for span in journal.read(since=0):  # stored spans, for followers that come later
    ...
"""

from driftline.serve.journal.consumer import Journal
from driftline.serve.journal.merging import Span

__all__ = ["Journal", "Span"]
