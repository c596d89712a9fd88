"""Deterministic simulation: the real nodes, master, fronts and consumer run in one process, in
virtual time.

A seed decides everything: message delays, cut channels, where a process crashes, which disk writes
fail or are torn. A failing seed replays exactly:

    driftline simulate FLOW --seed K
"""
