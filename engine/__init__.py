"""Lowest layer of Driftline: everything that is independent of processes and sockets.

Contains labels and key groups, the wire format and the messages, the flow and its operators,
managed state, ordering, snapshot files, the contract of sources, and the reference interpreter that
defines a flow's outputs. Imports no other package of Driftline.
"""
