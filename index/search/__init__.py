"""Search: the data of a collection's shard, and query evaluation as of a time T."""
