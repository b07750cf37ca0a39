"""Objects as an API server gives them, and a stand-in for the client that reads them."""

from __future__ import annotations

from collections import defaultdict

from builders import NOW, digest
from modelcache_kube import Forbidden, ObjectList

AT = "2026-01-01T00:00:00Z"


class PlayedKube:
    """Objects by plural; `forbidden` are plurals that may not be read. Patches are kept."""

    def __init__(self, forbidden=(), **objects) -> None:
        self.objects = {plural: list(found) for plural, found in objects.items()}
        self.forbidden = frozenset(forbidden)
        self.patches = []
        self.asked = defaultdict(int)

    def _find(self, resource, namespace):
        self.asked[resource.plural] += 1
        if resource.plural in self.forbidden:
            raise Forbidden(f"403: {resource.plural} is forbidden", code=403)
        found = self.objects.get(resource.plural, ())
        return [o for o in found if namespace in {None, o["metadata"].get("namespace")}]

    async def get(self, resource, name, namespace=None):
        found = self._find(resource, namespace)
        return next((one for one in found if one["metadata"]["name"] == name), None)

    async def list(self, resource, namespace=None, **_selectors):
        return ObjectList(tuple(self._find(resource, namespace)), "1")

    async def read_time(self):
        return NOW

    async def merge_patch(self, resource, name, body, *, namespace=None, **options):
        self.patches.append((resource.plural, namespace, name, body, options))
        found = await self.get(resource, name, namespace)
        return merge(found, body)


def merge(found, body):
    """RFC 7386."""
    if not isinstance(body, dict):
        return body
    merged = dict(found) if isinstance(found, dict) else {}
    for key, value in body.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def condition(kind="Ready", status="True", reason="Cached", message="", at=AT):
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }


def book(name="Disk", capacity=100 << 30, used=25 << 30, **fields):
    return {"name": name, "capacityBytes": capacity, "usedBytes": used, **fields}


def entry_spec(uid="u1", **fields):
    return {"uid": uid, "sourceDigest": digest("a"), "sizeBytes": 1 << 30, **fields}


def entry(uid="u1", state="Cached", **fields):
    held = {"contentDigest": digest("c"), "progressPercent": 100} if state == "Cached" else {}
    return {"uid": uid, "state": state, **held, **fields}


def node(name="n1", *, alive=True, tiers=None, specs=(), entries=(), metadata=None, **status):
    ready = (
        condition("Ready", "True", "AgentAlive")
        if alive
        else condition("Ready", "False", "NodeLost", "silent for 5 min")
    )
    return {
        "metadata": {"name": name, "uid": f"cn-{name}", **(metadata or {})},
        "spec": {"nodeUid": f"node-{name}", "entries": list(specs)},
        "status": {
            "tiers": [book()] if tiers is None else list(tiers),
            "entries": list(entries),
            "agentVersion": "0.1.0",
            "conditions": [ready],
            **status,
        },
    }


def version(name="m1", namespace="search", uid="u1", conditions=None, **status):
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "generation": 1},
        "spec": {"model": "org/m", "source": {"uri": "s3://models/m"}},
        "status": {
            "observedGeneration": 1,
            "sizeBytes": 1 << 30,
            "contentDigest": digest("c"),
            "conditions": conditions or [condition(reason="Resolved")],
            **status,
        },
    }


def cache(name="m", namespace="search", conditions=None, spec=None, metadata=None, **status):
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"mc-{name}",
            "generation": 1,
            **(metadata or {}),
        },
        "spec": {"stable": {"modelVersion": "m1"}, **(spec or {})},
        "status": {
            "observedGeneration": 1,
            "copies": {"wanted": 2, "ready": 2},
            "sizeBytes": 1 << 30,
            "conditions": conditions or [condition(reason="Cached", message="2 verified copies")],
            **status,
        },
    }


def quota(name="q", namespace="search", hard=None, conditions=None, status=None, **spec):
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"mq-{name}", "generation": 1},
        "spec": {"hard": hard or {}, **spec},
        "status": {
            "observedGeneration": 1,
            "conditions": conditions or [condition(reason="WithinQuota")],
            **(status or {}),
        },
    }
