"""The flows of a cluster: what is submitted, where it runs, how it is and how it ends."""
