"""A node's tiers under a trace of attaches, by the agent's own code and a virtual clock.

A library: `kubectl modelcache simulate` is its command line. Only `runs.py` starts processes and
only `trace.py` and `catalogue.py` read files; everything else is deterministic.

SimulationError    what was given cannot be simulated; the message names the thing and the cure
"""
