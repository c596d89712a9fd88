"""Benchmarks of Driftline, also against the floor: the same job without an engine."""
