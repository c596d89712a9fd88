"""The barrier: the end of a node. It decides when an output may leave for the consumer."""
