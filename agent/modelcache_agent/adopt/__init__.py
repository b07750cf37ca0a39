"""Local trees instead of a download: `modelcache-agent adopt` stages them, the agent takes them."""
