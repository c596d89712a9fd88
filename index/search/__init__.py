"""Search: what a shard of a collection knows, and how it answers queries as of a time T."""
