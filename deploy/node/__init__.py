"""The node: one party, and its dialogues with others."""
