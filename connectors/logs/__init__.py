"""Input logs: they make live records durable, so that a run can read them again."""
