"""Files as sources: lines, tables, dumps in buffers and parts."""
