"""Assembles the roles into nodes and masters, and runs them: over ZeroMQ or simulated."""
