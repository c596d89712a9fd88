"""The roles other than the node: front, master, candidate, consumer server, intake, guide, status
poller."""
