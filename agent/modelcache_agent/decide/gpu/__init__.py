"""The GPU tier's decisions. Pure."""
