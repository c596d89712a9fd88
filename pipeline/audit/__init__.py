"""The audit: what a consumer has against what a flow must give."""
