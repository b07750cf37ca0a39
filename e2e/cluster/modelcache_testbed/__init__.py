"""A real Kubernetes and a real object store on one machine, for tests and demonstrations."""

from modelcache_testbed.audit import AuditEvent, AuditLog
from modelcache_testbed.cluster import Cluster
from modelcache_testbed.credentials import GRANT_AUDIENCE, PodCredentials
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.local_cluster import LocalCluster
from modelcache_testbed.node_keeper import NodeKeeper
from modelcache_testbed.seaweed import Seaweed
from modelcache_testbed.waiting import wait_until

__all__ = [
    "GRANT_AUDIENCE",
    "AuditEvent",
    "AuditLog",
    "Cluster",
    "LocalCluster",
    "NodeKeeper",
    "PodCredentials",
    "Seaweed",
    "TestbedError",
    "wait_until",
]
