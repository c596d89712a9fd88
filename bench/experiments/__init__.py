"""The experiments: what is run, in which order, and what figures come of it."""
