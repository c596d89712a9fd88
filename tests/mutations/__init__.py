"""Mutations of the engine, each without one safeguard; the simulation must find every one."""
