"""The page of an index, for people."""
