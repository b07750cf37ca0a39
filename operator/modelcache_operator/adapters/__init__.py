"""The world: one file for each port."""
