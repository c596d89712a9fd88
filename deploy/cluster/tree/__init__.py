"""Where a cluster keeps what its agents and commands have to know of each other."""
