"""Commands that start, inspect and end flows, and their shared options."""
