"""How it is measured: the documents, the meter, and the loops that drive a system under it."""
