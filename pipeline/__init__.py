"""The data pipeline on Spark: the same flows, the same outputs, at any size."""
