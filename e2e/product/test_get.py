"""docs/get.md: pods that no agent serves and nothing injects into."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from modelcache_testbed.bucket import hash_tree
from modelcache_testbed.product import SYSTEM, TEAM, build_container, build_pod
from modelcache_testbed.tutorial import ROOT

pytestmark = pytest.mark.nodes

PAGE = ROOT / "docs" / "get.md"
HASH = "cd /mnt/models && find . -type f -exec sha256sum {} +"
PATHS = "/mnt/models"
OPEN = """
import json, sys
from safetensors import safe_open
from tokenizers import Tokenizer
with safe_open(sys.argv[1] + "/model.safetensors", "np") as weights:
    size = sum(weights.get_tensor(key).size for key in weights.keys())
ids = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json").encode("a pod finds its model").ids
print(json.dumps([size, ids]))
"""


@pytest.fixture(scope="module")
def said(product):
    """What the page's commands print."""
    yield product.follow_page(PAGE)
    product.cluster.kubectl("delete", "pod", f"--namespace={TEAM}", "batch", "--timeout=60s")


@pytest.fixture
def batch(product, said):
    assert "minilm-v1" in said
    return product.cluster.api.get(f"/api/v1/namespaces/{TEAM}/pods/batch")


def test_a_pod_without_the_label_has_every_file_of_the_bucket(product, batch):
    drivers = [volume["csi"] for volume in batch["spec"]["volumes"] if "csi" in volume]
    assert drivers == []
    lines = product.run(batch, HASH).splitlines()
    found = {path.removeprefix("./"): digest for digest, path in (one.split() for one in lines)}
    assert found == hash_tree(product.model)


def test_its_log_says_what_it_has_and_the_operators_who_was_granted_it(product, said, batch):
    path = f"/apis/modelcache.io/v1alpha1/namespaces/{TEAM}/modelversions/minilm-v1"
    digest = product.cluster.api.get(path)["status"]["contentDigest"]
    assert f"minilm-v1 is ready at /models/model: {digest}" in said
    logs = product.cluster.kubectl(
        "logs",
        f"--namespace={SYSTEM}",
        "--tail=-1",
        "--all-pods=true",
        "deployment/modelcache-operator",
    )
    assert f"pod {TEAM}/batch ({batch['metadata']['uid']}) was granted ModelVersion" in logs


def test_a_pod_of_another_namespace_is_refused_by_name(product, batch):
    namespace = "elsewhere"
    product.cluster.create_namespace(namespace)
    ca = product.cluster.api.get(f"/api/v1/namespaces/{TEAM}/configmaps/modelcache-ca")
    copy = {"metadata": {"name": "modelcache-ca"}, "data": ca["data"]}
    product.cluster.api.create(f"/api/v1/namespaces/{namespace}/configmaps", copy)
    (init,) = batch["spec"]["initContainers"]
    get = {
        **{key: init[key] for key in ("image", "securityContext", "volumeMounts")},
        "name": "main",
        "args": ["get", f"{TEAM}/minilm-v1", "--to=/models"],
    }
    get["volumeMounts"] = own_mounts(init)
    pod = build_pod("stranger", containers=[get], volumes=own_volumes(batch), restartPolicy="Never")
    path = f"/api/v1/namespaces/{namespace}/pods"
    product.cluster.api.create(path, pod)
    where = f"--namespace={namespace}"
    ended = "--for=jsonpath={.status.phase}=Failed"
    product.cluster.kubectl("wait", where, "pod/stranger", ended, "--timeout=60s")
    (status,) = product.cluster.api.get(f"{path}/stranger")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 3
    assert "of its own namespace alone" in product.cluster.kubectl("logs", where, "stranger")
    product.cluster.kubectl("delete", "namespace", namespace, "--timeout=60s")


@pytest.mark.skipif(
    importlib.util.find_spec("safetensors") is None
    or importlib.util.find_spec("tokenizers") is None,
    reason="safetensors and tokenizers are not installed",
)
def test_safetensors_opens_what_the_init_container_brought(product, batch):
    """With the Python of this machine, packages included, by folders of its host."""
    roots = {str(Path(root).resolve()) for root in (sys.prefix, sys.base_prefix)}
    folders = sorted({"/usr", "/lib", "/lib64", *(r for r in roots if not r.startswith("/usr"))})
    host = [{"name": f"host-{i}", "hostPath": {"path": p}} for i, p in enumerate(folders)]
    mounts = [
        {"name": f"host-{i}", "mountPath": p, "readOnly": True} for i, p in enumerate(folders)
    ]
    models = {"name": "models", "mountPath": PATHS, "subPath": "model", "readOnly": True}
    (init,) = batch["spec"]["initContainers"]
    get = {**init, "volumeMounts": own_mounts(init)}
    main = build_container(volumeMounts=[*mounts, models])
    pod = build_pod(
        "opens", initContainers=[get], containers=[main], volumes=[*own_volumes(batch), *host]
    )
    started = product.start_pod(TEAM, pod, seconds=180)
    where = (f"--namespace={TEAM}", started["metadata"]["name"], "--container=main")
    said = product.cluster.kubectl("exec", *where, "--", sys.executable, "-c", OPEN, PATHS)
    size, ids = json.loads(said)
    assert size > 22_000_000
    assert len(ids) > 5
    product.cluster.kubectl("delete", "pod", f"--namespace={TEAM}", "opens", "--timeout=60s")


def own_mounts(container):
    """Those of the page; the API server has added one with a token for itself."""
    return [one for one in container["volumeMounts"] if one["name"] in {"models", "modelcache"}]


def own_volumes(pod):
    return [one for one in pod["spec"]["volumes"] if one["name"] in {"models", "modelcache"}]
