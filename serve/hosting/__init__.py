"""The processes of a service: one for the journal, and one for each shard of each view."""
