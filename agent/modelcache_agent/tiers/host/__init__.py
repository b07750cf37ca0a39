"""The host tier: the page cache of published files, locked."""
