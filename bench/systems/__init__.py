"""Measured systems: Driftline, the floor, and the same flow on Spark, with their processes."""
