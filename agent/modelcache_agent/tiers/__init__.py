"""Where verified bytes lie on this node."""
