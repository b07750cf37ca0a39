"""The kinds of object that we ask the API server for, and their paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from modelcache_api import names
from modelcache_kube.errors import Invalid


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API. `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As objects spell it: `v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, name: str | None = None, namespace: str | None = None, subresource: str | None = None
    ) -> str:
        """The request path; names are quoted, so that none of them can leave its place.

        Without a namespace, the path of a namespaced resource spans all namespaces.

        Raises:
            Invalid: a part cannot be a name. The API server would take a quoted slash for a slash,
                so that a name could reach another object.
            ValueError: a part is missing, or has no place in the path.
        """
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self.plural} are not namespaced")
        if name is not None and self.namespaced and namespace is None:
            raise ValueError(f"{self.plural}/{name} needs a namespace")
        for part in (name, namespace, subresource):
            if part is not None and (part in {"", ".", ".."} or set(part) & {"/", "%"}):
                raise Invalid(f"{part!r} cannot be the name of one of {self.plural}")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = ["namespaces", namespace] if namespace is not None else []
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
            if subresource is not None:
                parts.append(subresource)
        return "/".join([root, *(quote(part, safe="") for part in parts)])


MODEL_VERSIONS: Final = Resource(
    names.GROUP, names.VERSION, names.PLURAL_MODEL_VERSION, names.KIND_MODEL_VERSION
)
MODEL_CACHES: Final = Resource(
    names.GROUP, names.VERSION, names.PLURAL_MODEL_CACHE, names.KIND_MODEL_CACHE
)
CACHE_NODES: Final = Resource(
    names.GROUP, names.VERSION, names.PLURAL_CACHE_NODE, names.KIND_CACHE_NODE, namespaced=False
)
MODEL_CACHE_QUOTAS: Final = Resource(
    names.GROUP, names.VERSION, names.PLURAL_MODEL_CACHE_QUOTA, names.KIND_MODEL_CACHE_QUOTA
)
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS: Final = Resource("", "v1", "pods", "Pod")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
HTTP_ROUTES: Final = Resource("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
