"""HTTP interface of the index."""
