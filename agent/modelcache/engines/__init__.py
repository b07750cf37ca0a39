"""Loader plug-ins of inference engines, each loaded by its engine through an entry point."""
