"""Child processes of a command: start, output, restart and exit; none outlives the command."""
