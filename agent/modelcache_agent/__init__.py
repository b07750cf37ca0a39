"""The node agent: fetches, verifies, holds and labels model weights."""
