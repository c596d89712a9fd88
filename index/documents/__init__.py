"""Documents of an index: schemas, field values, words, versions and writes."""
