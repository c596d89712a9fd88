"""What is measured: Driftline, the floor, and the same flow on Spark; each with its processes."""
