"""Search libraries and servers that get the same load: tantivy, SQLite FTS5, Redis search."""
