"""A thin async layer over the official Kubernetes client.

    async with connect(ConnectConfig(kubeconfig=path)) as kube:
        node = await kube.get(NODES, "n1")

It sends one request at a time, with a deadline, and says in one small tree of errors how it went.
Objects are plain JSON only here; callers parse them at once.
"""

from modelcache_kube.client import KubeClient, ObjectList, RequestHook
from modelcache_kube.connection import ConnectConfig, connect
from modelcache_kube.errors import (
    AlreadyExists,
    ApiUnavailable,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
)
from modelcache_kube.events import Event, EventType
from modelcache_kube.leases import ElectionTimes, LeaderElector, LeaseHeartbeat, boot_seconds
from modelcache_kube.resources import (
    CACHE_NODES,
    CONFIG_MAPS,
    EVENTS,
    HTTP_ROUTES,
    LEASES,
    MODEL_CACHE_QUOTAS,
    MODEL_CACHES,
    MODEL_VERSIONS,
    NODES,
    PODS,
    SECRETS,
    TOKEN_REVIEWS,
    Resource,
)
from modelcache_kube.token_review import TokenIdentity
from modelcache_kube.watching import Change, WatchEvent

__all__ = [
    "CACHE_NODES",
    "CONFIG_MAPS",
    "EVENTS",
    "HTTP_ROUTES",
    "LEASES",
    "MODEL_CACHES",
    "MODEL_CACHE_QUOTAS",
    "MODEL_VERSIONS",
    "NODES",
    "PODS",
    "SECRETS",
    "TOKEN_REVIEWS",
    "AlreadyExists",
    "ApiUnavailable",
    "Change",
    "Conflict",
    "ConnectConfig",
    "ElectionTimes",
    "Event",
    "EventType",
    "Expired",
    "Forbidden",
    "Invalid",
    "KubeClient",
    "KubeError",
    "LeaderElector",
    "LeaseHeartbeat",
    "NotFound",
    "ObjectList",
    "RequestHook",
    "Resource",
    "TokenIdentity",
    "WatchEvent",
    "boot_seconds",
    "connect",
]
