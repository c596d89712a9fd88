"""What is told of the versions that a query finds: facets, snippets, why, and what is like them."""
