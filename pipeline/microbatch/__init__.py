"""A flow on Spark Structured Streaming: exactly-once by micro-batches, to compare with."""
