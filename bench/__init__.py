"""Benchmarks: the cost of exactly-once, compared with a floor that no engine here can beat."""
