"""Real nodes on one machine: namespaces, containerd, kubelet and cgroups, one set for each."""
