"""The simulation: the same nodes, master, fronts and consumer in one process and virtual time.

A seed decides everything: how long messages take, which channels are cut, which process crashes
where, which disk writes fail or tear. A failing seed replays exactly:

    driftline simulate FLOW --seed K
"""
