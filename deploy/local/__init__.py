"""A run on this machine: checks its directories, drives its processes, verifies and saves its
state."""
