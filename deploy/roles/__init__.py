"""The parties beside the node: fronts, master, consumer, intake, and what members share."""
