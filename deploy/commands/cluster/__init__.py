"""The commands of a cluster: agents on its hosts, and flows that are submitted to them."""
