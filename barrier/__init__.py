"""Output barriers: the last stage of a node, which decides when an output leaves."""
