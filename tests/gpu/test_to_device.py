"""The library's way to a card, on one."""

from __future__ import annotations

import warnings

import pytest
import torch
from safetensors.torch import save_file

import modelcache

pytestmark = pytest.mark.gpu
SLICES = {"rows": (0, 100, 900), "columns": (1, 1, 300)}


@pytest.fixture
def weights(device, tmp_path):
    tensors = {name: torch.randn(4096, 4096) for name in ("rows", "columns", "whole")}
    save_file({**tensors, "scalar": torch.tensor(1.5)}, tmp_path / "model.safetensors")
    return modelcache.attach_folder(tmp_path).version().safetensors()


def test_a_busy_card_gets_what_the_file_has_through_page_locked_memory(weights):
    expected = weights.tensors(slices=SLICES)
    freed = torch.empty(64 << 20, device="cuda")
    for _ in range(20):
        freed.normal_()
    # Its memory is what the copies get, while the card still writes to it.
    del freed
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = weights.to("cuda", slices=SLICES)
    for name, tensor in found.items():
        assert tensor.is_cuda
        assert torch.equal(tensor.cpu(), expected[name])
    assert weights.pageable_bytes == 0


def test_a_card_without_room_is_left_as_it_was(weights):
    before = torch.cuda.memory_allocated()
    torch.cuda.set_per_process_memory_fraction(1e-4)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            weights.to("cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.cuda.memory_allocated() == before
