"""C50 and C51: what is applied is what is read back, and everything fits."""

from __future__ import annotations

import json

import pytest
import yaml

from contract.crds.conftest import CRDS
from contract.crds.objects import FULL, MINIMAL, RESOURCES, with_value
from modelcache_api.limits import MAX_ENTRIES_PER_NODE
from modelcache_kube import Invalid

pytestmark = pytest.mark.cluster
KINDS = list(RESOURCES)
MANAGER = "argocd-controller"
ANNOTATION_LIMIT = 256 * 1024
FILES = sorted(CRDS.glob("modelcache.io_*.yaml"))

# All that the schema adds to a spec.
DEFAULTS = {
    "ModelVersion": {
        "source": {"addressing": "Auto", "checksums": "WhenListed", "recheckInterval": "24h"},
        "onSourceGone": "Keep",
    },
    "ModelCache": {
        "tier": "Disk",
        "placement": {"copies": 1, "minReady": 1},
        "priority": "Normal",
        "retention": "Cached",
    },
    "ModelCacheQuota": {"maxPriority": "Normal", "allNodes": False},
    "CacheNode": {},
}


def merged(base, added):
    result = dict(base)
    for key, value in added.items():
        nested = isinstance(value, dict)
        result[key] = merged(base.get(key, {}), value) if nested else base.get(key, value)
    return result


@pytest.fixture
def apply_sample(hand, kube):
    async def apply(kind, sample, name):
        metadata = {"name": name} | ({"namespace": hand.namespace} if hand.place(kind) else {})
        body = {"metadata": metadata, "spec": sample["spec"]}
        return await kube.apply(RESOURCES[kind], body, field_manager=MANAGER)

    return apply


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", ["minimal", "full"])
async def test_C50_spec_read_back_equals_what_was_applied(hand, kube, apply_sample, kind, size):
    sample = (MINIMAL if size == "minimal" else FULL)[kind]
    name = f"c50-{size}-{kind.lower()}"
    first = await apply_sample(kind, sample, name)
    hand.made.append((kind, name))
    read = await kube.get(RESOURCES[kind], name, hand.place(kind))
    assert read["spec"] == merged(sample["spec"], DEFAULTS[kind])
    again = await apply_sample(kind, sample, name)
    assert again["metadata"]["generation"] == first["metadata"]["generation"] == 1
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@pytest.mark.parametrize("kind", KINDS)
async def test_C50_no_diff_for_kubectl(crds, hand, kind, tmp_path):
    made = await hand.create(kind, FULL[kind])
    metadata = {"name": made["metadata"]["name"]}
    body = {
        "apiVersion": RESOURCES[kind].api_version,
        "kind": kind,
        "metadata": metadata | ({"namespace": hand.namespace} if hand.place(kind) else {}),
        "spec": FULL[kind]["spec"],
    }
    file = tmp_path / "object.json"
    file.write_text(json.dumps(body))
    assert crds.kubectl("diff", "--server-side", "-f", str(file)) == ""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_C51_crd_fits_into_an_annotation(file):
    assert len(json.dumps(yaml.safe_load(file.read_text()))) < ANNOTATION_LIMIT
    assert file.stat().st_size < ANNOTATION_LIMIT


def test_C51_client_side_apply_of_the_crds_works(crds):
    told = crds.kubectl("apply", *(f"-f={file}" for file in FILES))
    assert told.count("\n") == len(FILES)


async def test_C51_huge_include_list_is_refused_with_the_limit(hand):
    body = with_value(MINIMAL["ModelVersion"], ("spec", "include"), ["x" * 200] * 2000)
    with pytest.raises(Invalid, match=r"spec\.include: Too many: 2000: must have at most 64 items"):
        await hand.create("ModelVersion", body)


async def test_C51_largest_spec_of_a_user_fits_into_an_annotation(hand):
    globs = ["ü" * 256] * 64
    body = with_value(FULL["ModelVersion"], ("spec", "include"), globs)
    body = with_value(body, ("spec", "exclude"), globs)
    body = with_value(body, ("spec", "load", "include"), globs)
    made = await hand.create("ModelVersion", body)
    assert len(json.dumps(made["spec"], ensure_ascii=False).encode()) < ANNOTATION_LIMIT


async def test_C51_fullest_cache_node_is_accepted(hand):
    full = FULL["CacheNode"]
    entries = [
        {**full["spec"]["entries"][0], "uid": f"{index:064}", "labelKey": "k" * 128}
        for index in range(MAX_ENTRIES_PER_NODE)
    ]
    caches = [{"namespace": "n" * 63, "name": "c" * 63, "stableUid": "u" * 64}] * len(entries)
    spec = {"nodeUid": "u1", "entries": entries, "caches": caches}
    made = await hand.create("CacheNode", {"spec": spec})
    told = [
        {**full["status"]["entries"][0], "uid": f"{index:064}", "message": "m" * 512}
        for index in range(2 * MAX_ENTRIES_PER_NODE)
    ]
    name = made["metadata"]["name"]
    stored = await hand.patch("CacheNode", name, {"status": {"entries": told}}, "status")
    # etcd refuses requests above 1.5 MiB.
    assert len(json.dumps(stored)) < 1024 * 1024
