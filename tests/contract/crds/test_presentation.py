"""What people see: `kubectl get`, short names, categories, `kubectl explain`."""

from __future__ import annotations

import pytest

from contract.crds.objects import FULL, RESOURCES
from modelcache_api.crdgen import KINDS

pytestmark = pytest.mark.cluster

VIEWS = [
    pytest.param(
        "ModelVersion",
        ["NAME", "MODEL", "SIZE", "FILES", "NODES", "READY", "STATUS", "AGE"],
        ["sentence-transformers/all-MiniLM-L6-v2", "87Mi", "5", "2", "True", "Resolved"],
        id="ModelVersion",
    ),
    pytest.param(
        "ModelCache",
        [
            "NAME",
            "STABLE",
            "CANARY",
            "TRAFFIC",
            "COPIES",
            "TIER",
            "SIZE",
            "PROGRESS",
            "STATUS",
            "AGE",
        ],
        ["minilm-v1", "minilm-v2", "95/5", "1/2", "Host", "87Mi", "70%", "Resolved"],
        id="ModelCache",
    ),
    pytest.param(
        "CacheNode",
        ["NAME", "READY", "STATUS", "DISK", "HOST", "GPU", "MODELS", "FAILED", "AGENT", "AGE"],
        ["True", "Resolved", "87Mi/931Gi", "10Gi/80Gi", "1", "0", "0.1.0"],
        id="CacheNode",
    ),
    pytest.param(
        "ModelCacheQuota",
        ["NAME", "DISK", "HOST", "GPU", "PINNED", "PRIORITY", "ALL", "REFUSED", "STATUS", "AGE"],
        ["931Gi/2Ti", "954Mi/64Gi", "0/80Gi", "0/100Gi", "High", "true", "1", "Resolved"],
        id="ModelCacheQuota",
    ),
]


@pytest.mark.parametrize(("kind", "head", "row"), VIEWS)
async def test_columns(hand, crds, kind, head, row):
    made = await hand.create(kind, FULL[kind])
    name = made["metadata"]["name"]
    await hand.patch(kind, name, {"status": FULL[kind]["status"]}, "status")
    short_name = next(k.short_names[0] for k in KINDS if k.__name__ == kind)
    scope = ["-n", hand.namespace] if hand.place(kind) else []
    lines = crds.kubectl("get", short_name, name, *scope).splitlines()
    assert lines[0].split() == head
    assert lines[1].split()[:-1] == [name, *row]


def test_wide_shows_the_message(crds):
    head = crds.kubectl("get", "mcache,mver", "-A", "-o", "wide", "--ignore-not-found")
    columns = [c.name for kind in KINDS for c in kind.columns if c.priority]
    assert columns == ["Digest", "Source", "SourceState", "InTier", "Ready", "Message"]
    assert not head or "MESSAGE" in head


def test_category_finds_all_kinds_and_all_finds_none(crds):
    listed = crds.kubectl("api-resources", "--categories=model-cache", "-o", "name").split()
    assert set(listed) == {f"{r.plural}.{r.group}" for r in RESOURCES.values()}
    assert "modelcache.io" not in crds.kubectl("api-resources", "--categories=all", "-o", "name")


EXPLAINED = [
    pytest.param(
        "modelcache", "Where a model is held: the version, the number of copies", id="kind"
    ),
    pytest.param("mcache.spec", "What the user wants.", id="spec"),
    pytest.param("modelcache.spec.placement", "On how many nodes, and on which.", id="object"),
    pytest.param("modelcache.spec.placement.copies", "every eligible node", id="int or word"),
    pytest.param("mcache.spec.placement.tolerations.effect", "NoExecute", id="enum"),
    pytest.param("modelversion.spec.source", "Only `uri` is part of the identity", id="class text"),
    pytest.param("mver.spec.source.uri", "s3://bucket/prefix", id="scalar"),
    pytest.param("mquota.spec.hard", "Bytes of copies on all nodes together", id="quota"),
    pytest.param("mquota.spec.hard.pinned", "None are granted if absent", id="quota of pinned"),
    pytest.param("cnode.status", "Written by the node's agent", id="status"),
]


@pytest.mark.parametrize(("path", "text"), EXPLAINED)
def test_explain(crds, path, text):
    told = " ".join(crds.kubectl("explain", path).split())
    assert text in told


def test_explain_has_words_for_every_field(crds):
    for resource in RESOURCES.values():
        told = crds.kubectl("explain", resource.plural, "--recursive")
        assert "<no description>" not in told
        for part in ("spec", "status"):
            assert "<empty>" not in crds.kubectl("explain", f"{resource.plural}.{part}")
