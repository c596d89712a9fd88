"""The roles other than the node (front, master, consumer, intake) and the base of members."""
