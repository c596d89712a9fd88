"""Benchmarks: the cost of exactly-once, compared with the floor, the same job without an engine."""
