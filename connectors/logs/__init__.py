"""Input logs: live records made durable, and read again."""
