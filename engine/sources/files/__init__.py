"""Files as sources: lines, tables, dumps in blocks and parts."""
