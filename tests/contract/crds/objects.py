"""Objects to start from, and small ways to change one."""

from __future__ import annotations

import copy
from typing import Any

from modelcache_kube import (
    CACHE_NODES,
    MODEL_CACHE_QUOTAS,
    MODEL_CACHES,
    MODEL_VERSIONS,
    Resource,
)

Object = dict[str, Any]
DIGEST = "sha256:" + "0123456789abcdef" * 4
COMMIT = "0123456789" * 4
NOW = "2026-01-31T12:00:00Z"
GONE = object()

RESOURCES: dict[str, Resource] = {
    "ModelVersion": MODEL_VERSIONS,
    "ModelCache": MODEL_CACHES,
    "CacheNode": CACHE_NODES,
    "ModelCacheQuota": MODEL_CACHE_QUOTAS,
}

CONDITION: Object = {
    "type": "Ready",
    "status": "True",
    "reason": "Resolved",
    "message": "All is well.",
    "observedGeneration": 1,
    "lastTransitionTime": NOW,
}

MINIMAL: dict[str, Object] = {
    "ModelVersion": {"spec": {"model": "m", "source": {"uri": "s3://models"}}},
    "ModelCache": {"spec": {"stable": {"modelVersion": "minilm-v1"}}},
    "CacheNode": {"spec": {"nodeUid": "u1"}},
    "ModelCacheQuota": {"spec": {}},
}

# As much as may be said of a repository of the hub.
HUB: Object = {
    "spec": {
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "source": {
            "uri": "hf://sentence-transformers/all-MiniLM-L6-v2@v1.0",
            "endpoint": "https://mirror.example/api/hub",
            "caBundleRef": {"kind": "Secret", "name": "ca", "key": "bundle.pem"},
            "credentialsSecretRef": {"name": "models-hub"},
        },
    }
}

# As much as may be said of a folder of a web server: with its list, or with its checksum file.
LISTED: Object = {
    "spec": {
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "source": {
            "uri": "https://models.example:8443/minilm/v1/",
            "caBundleRef": {"kind": "Secret", "name": "ca", "key": "bundle.pem"},
        },
        "files": ["config.json", "1_Pooling/config.json", "model.safetensors"],
    }
}
SUMMED: Object = {
    "spec": {
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "source": {"uri": "https://models.example/minilm/v1/"},
        "checksumFile": "SHA256SUMS.txt",
    }
}

FULL: dict[str, Object] = {
    "ModelVersion": {
        "spec": {
            "model": "sentence-transformers/all-MiniLM-L6-v2",
            "source": {
                "uri": "s3://models/minilm/v1",
                "endpoint": "http://seaweed.storage:8333",
                "region": "eu-central-1",
                "addressing": "Path",
                "checksums": "Ask",
                "caBundleRef": {"kind": "Secret", "name": "ca", "key": "bundle.pem"},
                "credentialsSecretRef": {"name": "models-s3"},
                "recheckInterval": "12h",
            },
            "onSourceGone": "Drop",
            "include": ["*.safetensors", "config/**"],
            "exclude": ["*.bin"],
            "load": {"include": ["encoder.layer.0.*", "embeddings.*"]},
            "digest": DIGEST,
        },
        "status": {
            "observedGeneration": 1,
            "sourceDigest": DIGEST,
            "sourceRevision": COMMIT,
            "sourceIdentity": "Mixed",
            "contentDigest": DIGEST,
            "contentManifestDigest": DIGEST,
            "sizeBytes": 91_000_000,
            "size": "87Mi",
            "files": 5,
            "lastCheckTime": NOW,
            "nodes": {"disk": 2, "host": 1, "gpu": 0},
            "nodeLabelKey": "cache.modelcache.io/minilm-0123456789abcdef",
            "conditions": [CONDITION],
        },
    },
    "ModelCache": {
        "spec": {
            "stable": {"modelVersion": "minilm-v1"},
            "canary": {"modelVersion": "minilm-v2", "weight": 50},
            "rollout": {
                "steps": [25],
                "interval": "10m",
                "onFailure": "Rollback",
                "holdFor": "2h",
                "deadline": "48h",
                "residency": "Proportional",
                "gate": {
                    "query": "sum(rate(errors[5m])) / sum(rate(requests[5m]))",
                    "comparison": "AtMost",
                    "threshold": "0.01",
                    "interval": "30s",
                    "firstStep": "Free",
                },
                "httpRouteRef": {
                    "name": "embed",
                    "stableService": "embed-stable",
                    "canaryService": "embed-canary",
                },
            },
            "tier": "Host",
            "priority": "High",
            "retention": "Pinned",
            "placement": {
                "copies": 2,
                "minReady": 2,
                "nodeSelector": {"pool": "gpu", "example.org/zone": ""},
                "tolerations": [
                    {
                        "key": "gpu",
                        "operator": "Equal",
                        "value": "yes",
                        "effect": "NoSchedule",
                    }
                ],
            },
        },
        "status": {
            "observedGeneration": 1,
            "tracks": [
                {
                    "name": "stable",
                    "modelVersion": "minilm-v1",
                    "uid": "u1",
                    "contentDigest": DIGEST,
                    "nodeLabelKey": "cache.modelcache.io/minilm-0123456789abcdef",
                }
            ],
            "traffic": {"stable": 95, "canary": 5},
            "trafficSummary": "95/5",
            "rollout": {
                "canaryUid": "u2",
                "modelVersion": "minilm-v2",
                "aim": 50,
                "startedAt": NOW,
                "movedAt": NOW,
                "ended": "CanaryExpired",
                "endedMessage": "Too late.",
                "copies": 2,
                "copiesReady": 2,
                "extraBytes": 182_000_000,
            },
            "held": [
                {
                    "uid": "u0",
                    "modelVersion": "minilm-v0",
                    "digest": DIGEST,
                    "until": NOW,
                    "copies": 2,
                    "pods": 1,
                }
            ],
            "copies": {
                "wanted": 2,
                "placed": 2,
                "ready": 1,
                "inTier": 1,
                "failed": 1,
                "demanded": 1,
            },
            "copiesSummary": "1/2",
            "progress": "70%",
            "sizeBytes": 91_000_000,
            "size": "87Mi",
            "failures": [{"node": "n1", "reason": "TransferStalled", "message": "Too slow."}],
            "failuresOmitted": 0,
            "conditions": [CONDITION],
        },
    },
    "CacheNode": {
        "spec": {
            "nodeUid": "u1",
            "entries": [
                {
                    "uid": "v1",
                    "sourceDigest": DIGEST,
                    "contentDigest": DIGEST,
                    "labelKey": "cache.modelcache.io/minilm-0123456789abcdef",
                    "tier": "Disk",
                    "sizeBytes": 91_000_000,
                    "model": "sentence-transformers/all-MiniLM-L6-v2",
                    "revision": COMMIT,
                    "evictable": True,
                    "priority": "High",
                    "pinned": True,
                    "overQuota": True,
                    "origin": "Placement",
                }
            ],
            "caches": [
                {
                    "namespace": "search",
                    "name": "minilm",
                    "stableUid": "v1",
                    "origin": "Placement",
                    "canaryUid": "v2",
                    "canaryWeight": 5,
                    "heldUids": ["v0"],
                }
            ],
        },
        "status": {
            "agentVersion": "0.1.0",
            "tiers": [
                {
                    "name": "Disk",
                    "capacityBytes": 10**12,
                    "usedBytes": 91_000_000,
                    "reservedBytes": 0,
                    "pendingReleaseBytes": 0,
                }
            ],
            "entries": [
                {
                    "uid": "v1",
                    "state": "Cached",
                    "contentDigest": DIGEST,
                    "tier": "Disk",
                    "progressPercent": 100,
                    "reason": "Cached",
                    "message": "Verified.",
                    "mounts": 1,
                }
            ],
            "demands": [{"namespace": "search", "name": "minilm"}],
            "canaryPods": [{"uid": "pod-uid", "version": "v2"}],
            "diskSummary": "87Mi/931Gi",
            "gpuSummary": "10Gi/80Gi",
            "models": 1,
            "failed": 0,
            "peer": {"address": "10.1.2.3", "port": 9405, "suspects": ["node-uid"]},
            "conditions": [CONDITION],
        },
    },
    "ModelCacheQuota": {
        "spec": {
            "hard": {"disk": "2Ti", "host": "64Gi", "gpu": "80Gi", "pinned": "100Gi"},
            "maxPriority": "High",
            "allNodes": True,
        },
        "status": {
            "observedGeneration": 1,
            "used": {"diskBytes": 10**12, "hostBytes": 10**9, "gpuBytes": 0, "pinnedBytes": 0},
            "disk": "931Gi/2Ti",
            "host": "954Mi/64Gi",
            "gpu": "0/80Gi",
            "pinned": "0/100Gi",
            "refused": 1,
            "conditions": [CONDITION],
        },
    },
}


def sample_of(kind: str, path: tuple[str | int, ...]) -> Object:
    """An object that has the field: what goes with one kind of source alone is not in FULL."""
    if kind == "ModelVersion" and path[:2] == ("spec", "files"):
        return LISTED
    if kind == "ModelVersion" and path[:2] == ("spec", "checksumFile"):
        return SUMMED
    return FULL[kind]


def with_value(obj: Object, path: tuple[str | int, ...], value: Any) -> Object:
    """A copy with the value put at the path, or taken away if it is GONE."""
    changed = copy.deepcopy(obj)
    parent = changed
    for part in path[:-1]:
        parent = parent[part] if isinstance(part, int) else parent.setdefault(part, {})
    if value is GONE:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return changed


def value_at(obj: Object, path: tuple[str | int, ...]) -> Any:
    value: Any = obj
    for part in path:
        value = value[part]
    return value
