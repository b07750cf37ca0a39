"""C53: requests that the roles refused."""

from __future__ import annotations

from modelcache_testbed import Cluster
from modelcache_testbed.audit import AuditEvent

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def find_denied(cluster: Cluster, since: int, user: str) -> list[AuditEvent]:
    """Requests of users whose name holds `user` that were forbidden and still would be.

    The API server also answers 403 before it has read its roles after a restart, and to a creation
    in a namespace that is going; no role would change that.
    """
    denied = [event for event in cluster.audit.denied(since) if user in event.user]
    return [event for event in denied if not is_allowed(cluster, event)]


def is_allowed(cluster: Cluster, event: AuditEvent) -> bool:
    """What the authorizer says of the same request now."""
    path = event.uri.partition("?")[0].split("/")
    account_namespace = event.user.split(":")[2]
    review = {
        "spec": {
            "user": event.user,
            "groups": [
                "system:authenticated",
                "system:serviceaccounts",
                f"system:serviceaccounts:{account_namespace}",
            ],
            "resourceAttributes": {
                "group": path[2] if path[1] == "apis" else "",
                "resource": event.resource,
                "subresource": event.subresource,
                "verb": event.verb,
                "namespace": event.namespace,
                "name": event.name,
            },
        }
    }
    return bool(cluster.api.create(_REVIEWS, review)["status"]["allowed"])
