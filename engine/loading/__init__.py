"""From a model name to files on disk, and from files to weights."""
