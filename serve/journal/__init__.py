"""The journal: a durable log of all outputs of a flow in label order.

journal = Journal(Path("journal"), flow, identity)
journal.followers.append(follower.take)  # each span, before it is stored
journal.deliver(bundle)  # of any barrier; returns when the bundle is durable
for span in journal.read(since=0):  # stored spans, for a follower that joins later
    ...
"""

from driftline.serve.journal.consumer import Journal
from driftline.serve.journal.merging import Span

__all__ = ["Journal", "Span"]
