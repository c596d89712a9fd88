"""What a user writes: the flow, its plan, the context of a function, and how it is found."""
