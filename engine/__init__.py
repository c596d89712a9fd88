"""Lowest layer of Driftline, which imports no other package of it and opens no sockets.

Contains labels and key groups, the wire format and the messages, flows and their operators, managed
state, snapshots and storage, the contract of sources, policies, the reference interpreter that
defines a flow's outputs, and the options and consoles that commands share (`engine.ui`).
"""
