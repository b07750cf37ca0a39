"""A real Kubernetes and a real object store on one machine, for tests and demonstrations."""

from modelcache_testbed.cluster import Cluster
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.local_cluster import LocalCluster

__all__ = ["Cluster", "LocalCluster", "TestbedError"]
