"""Scenarios: the flows, records and settings that a seed decides."""
