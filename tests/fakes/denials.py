"""C53: requests that the roles refused."""

from __future__ import annotations

from modelcache_testbed import Cluster
from modelcache_testbed.audit import AuditEvent


def find_denied(cluster: Cluster, since: int, user: str) -> list[AuditEvent]:
    """Requests of users whose name holds `user` that were forbidden.

    The API server also answers 403 to a creation in a namespace that is going; no role would
    change that.
    """
    denied = [event for event in cluster.audit.denied(since) if user in event.user]
    return [event for event in denied if not (event.verb == "create" and is_going(cluster, event))]


def is_going(cluster: Cluster, event: AuditEvent) -> bool:
    """True if the request's namespace is being deleted or gone by now."""
    if not event.namespace:
        return False
    found = cluster.api.find(f"/api/v1/namespaces/{event.namespace}")
    return found is None or "deletionTimestamp" in found["metadata"]
