"""Clusters: agents on hosts, submitted flows, and the placement of their roles."""
