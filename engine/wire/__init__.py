"""Wire format: the codec, labels in columns, messages, bundles, and numbered channels."""
