"""The processes of a service: the journal's, and one for each shard of each view."""
