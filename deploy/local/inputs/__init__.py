"""The inputs of a run: what it reads, from whom, and how far it is."""
