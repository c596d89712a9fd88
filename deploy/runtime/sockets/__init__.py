"""The ZeroMQ sockets of a process: who may send to them, and how much of that is taken in."""
