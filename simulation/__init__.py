"""Deterministic simulation: the real nodes, master, fronts and consumer in one process and virtual
time.

A seed decides everything: message delays, cut channels, where a process crashes, which disk writes
fail or tear. A failing seed replays exactly:

    driftline simulate FLOW --seed K
"""
