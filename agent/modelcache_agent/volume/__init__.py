"""The pod's volume: one process that mounts, the agent that fills, a command that waits."""
