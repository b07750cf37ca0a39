"""A version into a folder, in a pod without the volume: `modelcache-agent get`."""
