"""Pure decisions of the agent: no I/O, no clock, no randomness."""
