"""The coordinator of a run, and the registry, the durable record of its decisions."""
