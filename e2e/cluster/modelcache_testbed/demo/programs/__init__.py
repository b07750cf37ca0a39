"""What the demo runs as processes of their own: they use torch, which the demo itself does not."""
