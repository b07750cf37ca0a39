"""The registration of the webhook with the API server. Pure."""

from __future__ import annotations

from typing import Any, Final

from modelcache_operator.injection_policy import SELECT_LABELLED, exclude_namespace

NAME: Final = "modelcache-injection"
SERVICE: Final = "modelcache-webhook"
# Seconds that a pod with our label may be held up by a webhook that does not answer.
TIMEOUT_SECONDS: Final = 2
PATH: Final = "/inject"


def build_registration(client: dict[str, Any], system_namespace: str) -> dict[str, Any]:
    """`client` says how the API server reaches it: `service` or `url`, and `caBundle`."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
        "scope": "Namespaced",
    }
    hook = {
        "name": "injection.modelcache.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        # A model pod without its model says so itself; a cluster without new pods is an outage.
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "namespaceSelector": exclude_namespace(system_namespace),
        "objectSelector": SELECT_LABELLED,
        "reinvocationPolicy": "IfNeeded",
        "rules": [rule],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [hook],
    }


def reach_by_service(namespace: str, authority: str) -> dict[str, Any]:
    """The client of a webhook in the cluster; `authority` is base64 of PEM."""
    service = {"name": SERVICE, "namespace": namespace, "path": PATH, "port": 443}
    return {"service": service, "caBundle": authority}
