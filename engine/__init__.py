"""The ground of Driftline: everything that knows nothing of processes, sockets and protocols.

Labels and key groups, the wire format and the messages, the flow and its operators, managed
state, ordering, snapshot files, sources and sinks, and the reference interpreter that says what
a flow's output must be. Imports nothing above itself.
"""
