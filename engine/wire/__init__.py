"""Wire format: the codec, labels in columns, messages, addresses, bundles, numbered channels."""
