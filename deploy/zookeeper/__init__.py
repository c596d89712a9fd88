"""Real ZooKeeper servers on this machine, for development and tests, from the jars of PySpark."""
