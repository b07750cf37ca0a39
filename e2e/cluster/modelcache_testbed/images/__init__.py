"""Container images: ours, and the small ones that a cluster without a registry needs."""
