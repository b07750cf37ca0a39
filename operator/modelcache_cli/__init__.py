"""`kubectl modelcache`: what people type."""
