"""The node: the party that runs operators, and its dialogues with other parties."""
