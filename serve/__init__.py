"""The journal of a flow's outputs, its views, and the service that hosts them.

    barriers -> journal (merges by label, forwards, stores) -> views (answer as of a time)

The journal (`journal`) is the consumer of all barriers of an exactly-once run. A view (`views`) is
a function of a prefix of the journal, so all replicas of a view give the same answers. `hosting`
contains the processes of both. `gateway` and `http` serve HTTP clients; `running` starts a service.
"""
