"""The inputs of a run: sources, receivers, bad records and progress."""
