"""The barrier: the last stage of a node. Decides when an output may leave."""
