"""A model larger than the device: while a layer runs, the next one is read, and no more."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel

import modelcache
from modelcache import BadFileError, LayoutError
from modelcache_testbed.bucket import minilm_folder

IDS = torch.tensor([[101, 7592, 2088, 999, 102]])


def alive_bytes():
    """Memory of all tensors that are alive; views of mapped files have none of their own."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    spans = [line.split(" ", 1)[0].split("-") for line in lines if ".safetensors" in line]
    maps = [range(int(start, 16), int(end, 16)) for start, end in spans]
    storages = {}
    for found in gc.get_objects():
        if issubclass(type(found), torch.Tensor) and found.device.type == "cpu":
            storage = found.untyped_storage()
            if not any(storage.data_ptr() in mapped for mapped in maps):
                storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


@pytest.fixture(scope="module")
def minilm():
    """The real model: its weights, what it computes whole, and how large its layers are."""
    weights = modelcache.attach_folder(minilm_folder()).version().safetensors()
    whole = BertModel.from_pretrained(minilm_folder()).eval()
    with torch.inference_mode():
        expected = whole(IDS).last_hidden_state.clone()
    layers = [sum(p.nbytes for p in layer.parameters()) for layer in whole.encoder.layer]
    rest = sum(tensor.nbytes for tensor in whole.state_dict().values()) - sum(layers)
    return weights, expected, layers, rest


def empty_minilm():
    """Without weights; buffers that no file holds have their values."""
    config = BertConfig.from_pretrained(minilm_folder())
    with torch.device("meta"):
        module = BertModel(config)
    for name, buffer in list(module.named_buffers()):
        owner, _, attribute = name.rpartition(".")
        values = torch.arange(buffer.shape[-1]).expand(buffer.shape)
        filled = values if "position" in name else torch.zeros(buffer.shape, dtype=buffer.dtype)
        module.get_submodule(owner).register_buffer(attribute, filled, persistent=False)
    return module.eval()


def test_a_real_model_computes_the_same_with_two_layers_in_memory(minilm):
    weights, expected, layers, rest = minilm
    module, seen = empty_minilm(), []
    before = alive_bytes()
    for layer in module.encoder.layer[::2]:
        layer.register_forward_hook(lambda *_: seen.append(alive_bytes() - before))
    with torch.inference_mode(), weights.stream_layers(module, "cpu") as stream:
        assert alive_bytes() - before < rest + layers[0] // 2, "no layer before the first call"
        for _ in range(2):
            assert torch.allclose(module(IDS).last_hidden_state, expected, atol=1e-5)
        assert stream
    assert len(seen) == len(layers), "every second one, twice"
    assert max(seen) < rest + 2.5 * max(layers)
    assert max(seen) >= rest + layers[0]
    assert all(p.is_meta for p in module.encoder.layer.parameters()), "nothing is left of them"
    assert not [t for t in threading.enumerate() if t.name.startswith("modelcache-layers")]


def test_layers_by_name_are_taken_back_one_by_one(minilm):
    weights, _, layers, _ = minilm
    names = [f"encoder.layer.{number}" for number in range(len(layers))]
    before, handed_out = alive_bytes(), []
    for name, tensors in weights.stream_layers(names, "cpu"):
        if name.endswith(("1", "4")):
            assert alive_bytes() - before < 2.5 * max(layers)
        whole = weights.tensor(f"{name}.output.dense.weight")
        assert torch.equal(tensors["output.dense.weight"], whole)
        handed_out.append(tensors)
    assert len(handed_out) == len(layers)
    assert not any(handed_out), "taken back"


class Small(torch.nn.Module):
    """Layers that may be skipped, with a tie into them."""

    def __init__(self, width=4):
        super().__init__()
        self.inner = torch.nn.Linear(width, width)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(4))
        self.blocks[3].weight = self.inner.weight

    def forward(self, values, order=(0, 1, 2, 3)):
        values = self.inner(values)
        for number in order:
            values = self.blocks[number](values)
        return values


@pytest.fixture
def small(tmp_path):
    torch.manual_seed(0)
    module = Small()
    state = {k: v.clone() for k, v in module.state_dict().items() if k != "blocks.3.weight"}
    save_file(state, tmp_path / "model.safetensors")
    return module, modelcache.attach_folder(tmp_path).version().safetensors()


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1), (2, 2, 0), ()], ids=str)
@pytest.mark.parametrize("ahead", [1, 9])
def test_layers_may_be_called_in_any_order_and_tied_ones_are_found(small, order, ahead):
    original, weights = small
    module = Small()
    with torch.no_grad(), weights.stream_layers(module, "cpu", ahead=ahead):
        for _ in range(2):
            values = torch.ones(4)
            assert torch.equal(module(values, order), original(values, order))


def test_layers_that_were_read_in_vain_take_no_room(tmp_path):
    width, seen = 256, []
    layer = 4 * width * (width + 1)
    with torch.device("meta"):
        module = Small(width)
    state = {name: torch.zeros(found.shape) for name, found in module.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    del state
    weights = modelcache.attach_folder(tmp_path).version().safetensors()
    before = alive_bytes()
    for block in module.blocks:
        block.register_forward_hook(lambda *_: seen.append(alive_bytes() - before))
    with torch.no_grad(), weights.stream_layers(module, "cpu", ahead=2):
        module(torch.ones(width), (0, 2, 1, 3, 0))
        for name, _ in weights.stream_layers("inner", "cpu"):
            assert name == "inner"
    assert max(seen) < 4.5 * layer, "the inner one, the one that runs, two ahead"


def test_a_call_that_fails_leaves_nothing_behind(small):
    _, weights = small
    module = Small()
    with weights.stream_layers(module, "cpu"):
        with pytest.raises(RuntimeError):
            module.blocks[0](torch.ones(5))
        assert all(p.is_meta for p in module.blocks.parameters())
        assert module(torch.ones(4)).shape == (4,)


def test_what_cannot_be_read_is_told_where_the_layer_is_called(small, monkeypatch):
    _, weights = small
    module, read = Small(), weights.tensor

    def fail(name):
        if name == "blocks.2.bias":
            raise BadFileError("the file ended")
        return read(name)

    monkeypatch.setattr(weights, "tensor", fail)
    with weights.stream_layers(module, "cpu"):
        module(torch.ones(4), (0, 1))
        with pytest.raises(BadFileError, match="the file ended"):
            module(torch.ones(4), (2,))


def test_a_module_that_does_not_fit_the_files_is_refused_by_name(small):
    _, weights = small
    with pytest.raises(LayoutError, match="Linear holds no ModuleList"):
        weights.stream_layers(torch.nn.Linear(4, 4), "cpu")
    other = Small()
    other.blocks.append(torch.nn.Linear(4, 4))
    with pytest.raises(LayoutError, match=r"'blocks.4.weight', which is not in the files"):
        weights.stream_layers(other, "cpu")
    other = Small()
    other.blocks[1] = torch.nn.Linear(4, 5)
    with pytest.raises(LayoutError, match=r"'blocks.1.weight' has the shape \(5, 4\)"):
        weights.stream_layers(other, "cpu")
    other = Small()
    other.register_buffer("mask", torch.empty(3, device="meta"), persistent=False)
    with pytest.raises(LayoutError, match="buffer 'mask'"), weights.stream_layers(other, "cpu"):
        pass
    with pytest.raises(LayoutError, match=r"begins with 'layers\.0\.'"):
        weights.stream_layers(["layers.0"], "cpu")
    with pytest.raises(ValueError, match="ahead=0"):
        weights.stream_layers(["blocks.0"], "cpu", ahead=0)
