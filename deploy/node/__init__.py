"""The node: the role that runs operators, and its protocols with other roles."""
