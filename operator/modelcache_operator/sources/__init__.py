"""Object stores: list, identify, sign."""
