"""The commands `run`, `new`, `graph` and `savepoint`, one file each."""
