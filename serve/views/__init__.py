"""Views: deterministic functions of a prefix of the journal, and how they follow it.

A process restores a view and lets it follow the journal:

    view = restore_view(path, identity, lambda: KeyValueView(sink=0))  # from its checkpoint
    for span in journal.read(view.time):
        apply_span(view, span)
    journal.followers.append(partial(apply_span, view))
    view.get("the", at=time_of(token))
"""
