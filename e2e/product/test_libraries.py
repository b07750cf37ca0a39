"""The libraries that people use, unmodified, in a pod without a network of its own choosing."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import modelcache
import modelcache_api
from modelcache_testbed.product import TEAM, build_container, build_pod

pytestmark = pytest.mark.nodes

NAME = "sentence-transformers/all-MiniLM-L6-v2"
EMBED = """
import json, sys
import torch
from transformers import AutoModel, AutoTokenizer
torch.manual_seed(0)
torch.set_num_threads(1)
found = []
for name in sys.argv[1:]:
    tokenizer, model = AutoTokenizer.from_pretrained(name), AutoModel.from_pretrained(name)
    with torch.no_grad():
        output = model(**tokenizer("a pod finds its model", return_tensors="pt"))
    found.append(output.last_hidden_state[0, 0].tolist())
print(json.dumps(found))
"""
LIBRARY = """
import json
import torch
import modelcache
from transformers import AutoConfig, AutoModel, AutoTokenizer
torch.set_num_threads(1)
version = modelcache.attach("minilm", timeout=60).version()
model = AutoModel.from_config(AutoConfig.from_pretrained(version.path)).eval()
version.load_into(model)
tokenizer = AutoTokenizer.from_pretrained(version.path)
with torch.no_grad():
    output = model(**tokenizer("a pod finds its model", return_tensors="pt"))
found = output.last_hidden_state[0, 0].tolist()
print(json.dumps([found, version.safetensors().private_bytes()]))
"""
OPEN = """
import json, os
from huggingface_hub import snapshot_download
from safetensors import safe_open
from tokenizers import Tokenizer
folder = snapshot_download(os.environ["HUB_NAME"])
sizes = []
for path in (os.environ["MODELCACHE_PATH"], folder):
    with safe_open(path + "/model.safetensors", "np") as weights:
        sizes.append(sum(weights.get_tensor(key).size for key in weights.keys()))
ids = Tokenizer.from_pretrained(os.environ["HUB_NAME"]).encode("a pod finds its model").ids
print(json.dumps([sizes, ids]))
"""


def build_python_pod(name):
    """A pod with the Python of this machine, packages included, by folders of its host."""
    roots = {str(Path(root).resolve()) for root in (sys.prefix, sys.base_prefix)}
    ours = [str(Path(package.__file__).parents[1]) for package in (modelcache, modelcache_api)]
    elsewhere = (root for root in (*roots, *ours) if not root.startswith("/usr"))
    folders = sorted({"/usr", "/lib", "/lib64", *elsewhere})
    volumes = [{"name": f"host-{i}", "hostPath": {"path": p}} for i, p in enumerate(folders)]
    mounts = [
        {"name": f"host-{i}", "mountPath": p, "readOnly": True} for i, p in enumerate(folders)
    ]
    env = [{"name": "HUB_NAME", "value": NAME}, {"name": "HOME", "value": "/nonexistent"}]
    env.append({"name": "PYTHONPATH", "value": ":".join(ours)})
    container = build_container(volumeMounts=mounts, env=env)
    return build_pod(
        name, labels={"modelcache.io/cache": "minilm"}, containers=[container], volumes=volumes
    )


@pytest.fixture(scope="module")
def python(product):
    """Run a program in such a pod."""
    pod = product.start_pod(TEAM, build_python_pod("python"))

    def run(program, *arguments):
        where = (f"--namespace={TEAM}", pod["metadata"]["name"], "--container=main")
        command = [sys.executable, "-c", program, *arguments]
        return json.loads(product.cluster.kubectl("exec", *where, "--", *command))

    yield run
    product.cluster.kubectl("delete", "pod", f"--namespace={TEAM}", "python", "--timeout=60s")


@pytest.mark.skipif(
    importlib.util.find_spec("huggingface_hub") is None, reason="huggingface_hub is not installed"
)
def test_safetensors_opens_it_and_the_hubs_library_finds_it_offline_by_name(python):
    sizes, ids = python(OPEN)
    assert sizes[0] == sizes[1] > 22_000_000
    assert len(ids) > 5


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None,
    reason="torch and transformers are not installed: the test above has what needs neither",
)
def test_transformers_loads_it_by_path_and_by_name_and_the_embedding_is_the_references(
    product, python
):
    said = subprocess.run(
        [sys.executable, "-c", EMBED, str(product.model)],
        capture_output=True,
        text=True,
        check=True,
    )
    (expected,) = json.loads(said.stdout)
    by_path, by_name = python(EMBED, "/mnt/models/model", NAME)
    assert by_path == pytest.approx(expected, abs=1e-6)
    assert by_name == by_path
    by_library, private = python(LIBRARY)
    assert by_library == pytest.approx(expected, abs=1e-6)
    assert private == 0
