"""Runs a service on this machine."""
