"""The audit: compares the outputs that a consumer has with those that the flow must give."""
