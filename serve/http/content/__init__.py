"""What requests and answers contain: their parameters, JSON, problems and streams."""
