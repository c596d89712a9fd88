"""Files as sources: formats of lines, tables and dumps, whole or in splits."""
