"""The contract between users, operator and agents. Pure: no I/O, no clock, no randomness."""
