"""Pure builders of complete Kubernetes objects."""
