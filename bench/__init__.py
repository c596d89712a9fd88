"""The benchmark: what exactly-once costs, next to the floor that no engine here can beat."""
