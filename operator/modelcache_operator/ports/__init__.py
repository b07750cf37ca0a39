"""What the core needs from the world, as protocols."""
