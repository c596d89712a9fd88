"""The agents of a cluster: they run the processes of flows, and keep what these log."""
