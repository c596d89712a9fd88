"""Views: deterministic functions of a prefix of the journal, and how they follow it.

view = restore_view(path, identity, lambda: KeyValueView(sink=0))  # from its checkpoint
updater = ViewUpdater(view)
for span in journal.read(view.time):
    updater.take(span)
journal.followers.append(updater.take)
view.get("the", at=time_of(token))
"""
