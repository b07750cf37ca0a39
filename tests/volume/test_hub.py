"""An unmodified library finds the model by its name, offline, as any user, on the real mount."""

from __future__ import annotations

import json
import sys

import pytest

from fakes.mount_room import READER_UID
from fakes.played_kubelet import Pod
from fakes.store_world import BODIES, opened, publish
from modelcache_agent.decide.hub_layout import make_hub_layout
from modelcache_agent.decide.volumes import Filling
from modelcache_agent.volume.fill import fill
from modelcache_agent.volume.folders import VolumeFolder

pytest.importorskip("huggingface_hub")

POD = Pod()
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
READ = """
import json, os, sys
os.environ |= {"HF_HUB_CACHE": sys.argv[1] + "/hub", "HF_HUB_OFFLINE": "1"}
os.environ |= {"HF_HOME": "/nonexistent", "HOME": "/nonexistent"}
from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError
model = sys.argv[2]
info = scan_cache_dir(sys.argv[1] + "/hub")
(repo,) = info.repos
folder = snapshot_download(model, local_files_only=True)
try:
    hf_hub_download(model, "missing.bin", local_files_only=True)
except LocalEntryNotFoundError:
    missing = True
print(json.dumps({
    "warnings": [str(warning) for warning in info.warnings],
    "repo": repo.repo_id,
    "refs": [sorted(revision.refs) for revision in repo.revisions],
    "bytes": repo.size_on_disk,
    "folder": folder,
    "same": snapshot_download(model) == folder,
    "config": open(hf_hub_download(model, "1_Pooling/config.json")).read(),
    "missing": missing,
}))
"""


def test_the_libraries_of_the_hub_find_the_model_offline(kubelet, room):
    target = kubelet.publish(POD)
    with opened(room.store) as store:
        digest = publish(store)
        filling = Filling("v1", digest, make_hub_layout(MODEL, digest))
        folder = VolumeFolder(room.store / "pods" / POD.uid / POD.volume_id)
        fill(folder, filling, store.catalog.get(digest), store.blobs)
    shown = room.run(sys.executable, "-c", READ, str(target), MODEL, uid=READER_UID)
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert found["warnings"] == []
    assert (found["repo"], found["refs"]) == (MODEL, [["main"]])
    assert found["bytes"] == sum(map(len, BODIES.values()))
    assert found["folder"].startswith(f"{target}/hub/")
    assert found["folder"].endswith(digest.removeprefix("sha256:")[:40])
    assert (found["same"], found["config"], found["missing"]) == (True, "{}", True)
