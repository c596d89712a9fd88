"""Policies that Driftline is compared with: two-phase commit and strong productions."""
