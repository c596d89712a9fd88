"""What follows the outputs of a flow: the journal, which has all of them in one order, and views.

    barriers -> journal (merges by label, forwards, stores) -> views, which answer as of a time

`journal` is the consumer of all barriers of an exactly-once run. A view (`views`) is a function of
a prefix of the journal: so any number of them, anywhere, give the same answers.
"""
