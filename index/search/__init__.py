"""Search in one shard of a collection: its data, and query evaluation as of a time T."""
