"""A module takes the shared pages as its parameters."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

import modelcache


class Tied(torch.nn.Module):
    """As language models do: the output layer is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(16, 8)
        self.inner = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.inner(self.embed(ids)))


@pytest.fixture
def reference(tmp_path):
    torch.manual_seed(0)
    module = Tied()
    state = {k: v.clone() for k, v in module.state_dict().items() if k != "head.weight"}
    save_file(state, tmp_path / "model.safetensors")
    return module, modelcache.attach_folder(tmp_path).version()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_it_computes_what_the_original_does_without_memory_of_its_own(reference, device):
    original, version = reference
    with torch.device(device):
        module = Tied()
    version.load_into(module)
    ids = torch.tensor([1, 5, 3])
    assert torch.equal(module(ids), original(ids))


def test_tied_parameters_stay_one_parameter(reference):
    _, version = reference
    module = Tied()
    version.load_into(module)
    assert module.head.weight is module.embed.weight


def test_training_writes_to_pages_of_its_own(reference):
    _, version = reference
    module = Tied()
    version.load_into(module)
    before = version.tensors()["inner.weight"].clone()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert not torch.equal(module.inner.weight, before)
    assert torch.equal(version.tensors()["inner.weight"], before)


def test_what_the_file_lacks_is_torchs_own_error_unless_it_is_allowed(reference):
    _, version = reference
    module = torch.nn.Sequential(torch.nn.Linear(8, 8))
    with pytest.raises(RuntimeError, match="Missing key"):
        version.load_into(module)
    version.load_into(module, strict=False)


def test_what_the_module_lacks_is_left_out(reference):
    original, version = reference
    module = torch.nn.ModuleDict({"inner": torch.nn.Linear(8, 8)})
    version.load_into(module)
    assert torch.equal(module["inner"].weight, original.inner.weight)


def test_a_shape_that_differs_is_an_error(reference):
    _, version = reference
    with pytest.raises(RuntimeError, match="size mismatch"):
        version.load_into(torch.nn.ModuleDict({"inner": torch.nn.Linear(4, 8)}))
