"""Runtime of the roles: processes, their start and shutdown, sockets, clocks and threads."""
