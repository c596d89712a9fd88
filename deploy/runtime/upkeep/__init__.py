"""What a process does about its memory and its cores, between two turns."""
