"""The directories of a run: whether they fit together, and how a run opens them, or begins anew."""
