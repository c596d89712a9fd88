"""Documents: which fields they have, and which words are in them."""
