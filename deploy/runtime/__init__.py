"""What parties live in: processes, their start and end, sockets, clocks and threads."""
