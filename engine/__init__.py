"""Lowest layer of Driftline: it imports no other package of Driftline, and opens no sockets.

Contains labels and key groups, the wire format and the messages, flows and their operators, managed
state, snapshots and storage, the contract of sources, policies, the reference interpreter that
defines a flow's outputs, and the options and consoles that commands share (`engine.ui`).
"""
