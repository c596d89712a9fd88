"""The report: tables and JSON, pictures, raw records, and broken guarantees."""
