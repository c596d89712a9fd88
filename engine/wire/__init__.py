"""What travels: the codec, labels in columns, messages, bundles, and numbered channels."""
