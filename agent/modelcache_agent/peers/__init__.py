"""Serving verified bytes to other nodes, and reading from them, over mutual TLS."""
