"""Judges a simulated run: its consumers, its outputs, its progress, and its damaged disks."""
