"""Readers and writers of the files that draft heads come in. Whatever does not fit the target is an error by name."""
