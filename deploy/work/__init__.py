"""How elements are worked off on a node: what waits, in which order, how fast, how far."""
