"""Run a service, on this machine or with the agents of a cluster."""
