"""A pod's volume for the engines. `make test-engines` installs them; other runs leave these out."""

from __future__ import annotations

import importlib.util
import json

import pytest
import torch
from safetensors.torch import save_file

from modelcache_api.names import ENV_MODEL_PATH, Reason, VolumeState
from modelcache_api.volume_progress import VolumeProgress, encode_progress

collect_ignore_glob = [] if importlib.util.find_spec("vllm") else ["test_*.py"]


@pytest.fixture
def tensors():
    torch.manual_seed(0)
    return {
        "embed.weight": torch.randn(32, 16),
        "inner.weight": torch.randn(16, 16).to(torch.bfloat16),
        "inner.bias": torch.randn(16),
    }


@pytest.fixture
def volume(tmp_path, tensors, monkeypatch):
    """Two shards with an index, and beside them the same weights once more."""
    model = tmp_path / "model"
    model.mkdir()
    shards = {"embed.weight": 1, "inner.weight": 2, "inner.bias": 2}
    names = {name: f"model-{shard:05}-of-00002.safetensors" for name, shard in shards.items()}
    for file in set(names.values()):
        save_file({n: tensors[n] for n, f in names.items() if f == file}, model / file)
    save_file(tensors, model / "consolidated.safetensors")
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    for file in model.iterdir():
        file.chmod(0o444)
    (tmp_path / "hub" / "models--org--name").mkdir(parents=True)
    ready = VolumeProgress("search/name", VolumeState.READY, Reason.CACHED, "", 100, 900)
    (tmp_path / "status.json").write_bytes(encode_progress(ready))
    monkeypatch.setenv(ENV_MODEL_PATH, str(model))
    return tmp_path


class Model(torch.nn.Module):
    """Takes weights as engines' models do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(32, 16)
        self.inner = torch.nn.Linear(16, 16).to(torch.bfloat16)
        self.inner.bias = torch.nn.Parameter(torch.zeros(16))

    def load_weights(self, weights):
        own = dict(self.named_parameters())
        loaded = set()
        for name, tensor in weights:
            own[name].data.copy_(tensor)
            loaded.add(name)
        return loaded


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def assert_loaded(model, tensors):
    def check():
        found = dict(model.named_parameters())
        assert set(found) == set(tensors)
        for name, expected in tensors.items():
            assert torch.equal(found[name], expected)

    return check
