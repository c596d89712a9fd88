"""What is told of it: tables and JSON, pictures, raw records, and promises that were broken."""
