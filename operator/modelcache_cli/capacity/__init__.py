"""`plan`: whether manifests fit a cluster, before they are applied. Only reads."""
