"""A thin async layer over the official Kubernetes client."""
