"""A cluster: agents on its hosts, the flows that are submitted to it, and where each role runs."""
