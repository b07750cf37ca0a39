"""Of a file that is not cached, only the pages of what was asked for are read."""

from __future__ import annotations

import ctypes
import mmap
import os

import pytest
import torch
from safetensors.torch import save_file

import modelcache
from modelcache_agent.tiers.host.pages import count_resident_bytes, drop_cached
from modelcache_testbed.waiting import wait_until

PAGE = mmap.PAGESIZE
SIDE = 1024


@pytest.fixture
def cold(tmp_path):
    """Weights of three matrices of 4 MiB, of which nothing is cached; and where they lie."""
    path = tmp_path / "model.safetensors"
    expected = {name: torch.randn(SIDE, SIDE) for name in ("before", "wanted", "behind")}
    save_file(expected, path)
    weights = modelcache.attach_folder(tmp_path).version().safetensors()
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)

    def is_gone():
        drop_cached(fd)
        return count_resident_bytes(fd) == 0

    wait_until(is_gone, seconds=30, what="the file to leave the page cache")
    yield weights, expected, fd
    os.close(fd)


def resident_pages(fd):
    """Numbers of the file's pages that are cached."""
    size = os.fstat(fd).st_size
    libc = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(
        fd, size, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE
    ) as found:
        answer = ctypes.create_string_buffer(-(-size // PAGE))
        begin = ctypes.c_char.from_buffer(found)
        address = ctypes.c_void_p(ctypes.addressof(begin))
        assert libc.mincore(address, ctypes.c_size_t(size), answer) == 0
        del begin
    return {number for number, byte in enumerate(answer.raw) if byte & 1}


def pages(offset, length):
    return set(range(offset // PAGE, (offset + length - 1) // PAGE + 1))


def test_a_tensor_by_name_costs_its_own_pages(cold):
    weights, expected, fd = cold
    info = weights.info("wanted")
    assert torch.equal(weights.to("cpu", ["wanted"])["wanted"], expected["wanted"])
    assert resident_pages(fd) == pages(info.offset, info.size_bytes)


def test_rows_of_a_tensor_cost_their_own_pages(cold):
    weights, expected, fd = cold
    info, row = weights.info("wanted"), 4 * SIDE
    found = weights.to("cpu", ["wanted"], {"wanted": (0, 256, 512)})["wanted"]
    assert torch.equal(found, expected["wanted"][256:512])
    assert resident_pages(fd) == pages(info.offset + 256 * row, 256 * row)


def test_columns_of_a_tensor_cost_no_page_of_another(cold):
    weights, expected, fd = cold
    info = weights.info("wanted")
    found = weights.to("cpu", ["wanted"], {"wanted": (1, 256, 512)})["wanted"]
    assert torch.equal(found, expected["wanted"][:, 256:512])
    assert resident_pages(fd) <= pages(info.offset, info.size_bytes)


def test_views_of_a_part_read_nothing_until_they_are_used(cold):
    weights, expected, fd = cold
    found = weights.tensors(["wanted"], {"wanted": (1, 0, 8)})["wanted"]
    assert resident_pages(fd) == set()
    assert torch.equal(found, expected["wanted"][:, :8])
