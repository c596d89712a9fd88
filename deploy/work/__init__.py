"""Work on a node: waiting blocks, their order, the time a turn takes, and tracking of progress."""
