"""Views: deterministic functions of a prefix of the journal, and how they follow it.

view = restore_view(path, identity, lambda: KeyValueView(sink=0))  # from its checkpoint
updater = ViewUpdater(view)
for span in journal.read(view.time):
    updater.take(span)
journal.followers.append(updater.take)
view.get("the", at=time_of(token))
"""

from driftline.serve.views.checkpoint import restore_view, write_checkpoint
from driftline.serve.views.hosted import View, ViewUpdater
from driftline.serve.views.keyvalue import KeyValueView, KeyVersion
from driftline.serve.views.tokens import time_of, token_of

__all__ = [
    "KeyValueView",
    "KeyVersion",
    "View",
    "ViewUpdater",
    "restore_view",
    "time_of",
    "token_of",
    "write_checkpoint",
]
