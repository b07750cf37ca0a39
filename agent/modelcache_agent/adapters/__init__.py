"""The ports over real things: API server, operator, clock, metrics, HTTP."""
