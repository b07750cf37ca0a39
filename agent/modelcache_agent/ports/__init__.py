"""What the loop needs of the world, as Protocols. Adapters implement them, tests may too."""
