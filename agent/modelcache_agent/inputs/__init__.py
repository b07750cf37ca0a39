"""What the agent's decisions were made of, written down so that they can be made again."""
