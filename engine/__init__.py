"""The lowest layer of Driftline: everything that is independent of processes and sockets.

Labels and key groups, the wire format and the messages, the flow and its operators, managed
state, ordering, snapshot files, sources and consumers, and the reference interpreter that defines
a flow's outputs. Imports no other package of Driftline.
"""
