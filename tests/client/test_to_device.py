"""Tensors in memory of one's own: on the CPU, and on a card by a ring of page-locked buffers."""

from __future__ import annotations

import gc
import threading
import warnings

import pytest
import torch
from safetensors.torch import save_file

import modelcache
from fakes.torch_cuda import CardTensor, StandInCuda, StandInTorch
from modelcache import block_reader, bring, device_copy, file_map, staging_ring
from modelcache.staging_ring import RingStoppedError, StagingRing
from modelcache_testbed.waiting import wait_until

BUFFER = 4096
SLICES = {"rows": (0, 3, 20), "columns": (1, 5, 40), "inner": (slice(2, 5), slice(None), slice(7))}


@pytest.fixture
def folder(tmp_path):
    tensors = {
        "rows": torch.randn(64, 48),
        "columns": torch.randn(96, 64).to(torch.bfloat16),
        "inner": torch.randint(0, 99, (6, 5, 9), dtype=torch.int16),
        "large": torch.randn(20_000),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 7),
        "odd": torch.arange(5, dtype=torch.uint8),
        "complex": torch.randn(3, dtype=torch.complex64),
        "truth": torch.tensor([True, False]),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


def open_weights(folder, **options):
    return modelcache.attach_folder(folder).version().safetensors(**options)


@pytest.fixture
def on_card(monkeypatch):
    """Puts a card in, and makes buffers small."""
    monkeypatch.setattr(bring, "_BUFFER_BYTES", BUFFER)

    def put(**behaviour):
        cuda = StandInCuda(**behaviour)
        monkeypatch.setattr(device_copy, "torch", StandInTorch(cuda))
        return cuda

    return put


@pytest.fixture
def no_patience(monkeypatch):
    monkeypatch.setattr(staging_ring, "_FIRST_WAIT_SECONDS", 0.05)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        plain = tensor.as_subclass(torch.Tensor)
        assert (plain.dtype, plain.shape) == (expected[name].dtype, expected[name].shape)
        assert torch.equal(plain, expected[name])


def assert_nothing_is_left(cuda):
    gc.collect()
    wait_until(lambda: not readers(), seconds=30, what="threads to end")
    wait_until(lambda: cuda.pinned_bytes == 0, seconds=30, what="page-locked memory to go")
    assert cuda.live_memory == 0


def readers():
    return [t for t in threading.enumerate() if t.name.startswith("modelcache-")]


@pytest.mark.parametrize("options", [{}, {"read_only": True}], ids=["private map", "read-only map"])
def test_on_the_cpu_they_are_the_processs_own(folder, options):
    weights = open_weights(folder, **options)
    found = weights.to("cpu", slices=SLICES)
    assert_same(found, weights.tensors(slices=SLICES))
    assert found["columns"].shape == (96, 35)
    for tensor in found.values():
        assert tensor.is_contiguous()
        tensor.zero_()
    assert weights.private_bytes() == 0
    assert not torch.equal(found["large"], weights.tensor("large")), "nobody else sees the write"
    assert_same(modelcache.attach_folder(folder).version().to("cpu"), weights.tensors())


def test_blocks_are_read_into_place_by_several_threads(folder, monkeypatch):
    monkeypatch.setattr(bring, "_BUFFER_BYTES", BUFFER)
    monkeypatch.setattr(block_reader, "_LONG_RUN_BYTES", 16)
    weights = open_weights(folder)
    assert_same(weights.to("cpu", slices=SLICES, readers=2), weights.tensors(slices=SLICES))


def test_a_file_system_without_maps_gives_the_same(folder, monkeypatch):
    def refuse(*_, **__):
        raise OSError(19, "No such device")

    expected = open_weights(folder).tensors(slices=SLICES)
    monkeypatch.setattr(file_map.mmap, "mmap", refuse)
    with pytest.warns(modelcache.CopiedWarning):
        weights = open_weights(folder)
    assert_same(weights.to("cpu", slices=SLICES), expected)


def test_on_meta_nothing_is_read(folder, monkeypatch):
    monkeypatch.setattr(block_reader.BlockReader, "read", None)
    found = open_weights(folder).to("meta", slices=SLICES)
    assert all(tensor.is_meta for tensor in found.values())
    assert (found["columns"].shape, found["columns"].dtype) == ((96, 35), torch.bfloat16)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_card_gets_what_the_file_has_through_few_buffers(folder, on_card, count):
    cuda, weights = on_card(), open_weights(folder)
    found = weights.to("cuda", slices=SLICES, readers=count)
    assert all(isinstance(tensor, CardTensor) for tensor in found.values())
    assert_same(found, weights.tensors(slices=SLICES))
    assert cuda.pins == [BUFFER] * len(cuda.pins)
    assert cuda.peak_pinned_bytes <= count * BUFFER
    [stream] = cuda.streams
    assert len(stream.asked) > 3 * count, "each buffer is used again and again"
    assert stream.waited_for == [("the caller's of cuda:0", 0)], "before the first copy"
    assert weights.pageable_bytes == 0
    del found
    stream.asked.clear()
    assert_nothing_is_left(cuda)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_all_readers_read_at_once(folder, on_card, monkeypatch, device):
    on_card()
    weights, fill, started = open_weights(folder), block_reader._fill, []
    together = threading.Barrier(4, timeout=60)

    def meet(*arguments):
        started.append(1)
        if len(started) <= 4:
            together.wait()
        fill(*arguments)

    monkeypatch.setattr(block_reader, "_fill", meet)
    assert_same(weights.to(device, ["large"]), weights.tensors(["large"]))
    assert len(started) > 8


def test_the_parts_of_all_ranks_together_are_the_tensors(folder):
    weights, dimensions = open_weights(folder), {"rows": 0, "col*": 1}
    parts = [weights.to("cpu", slices=weights.split(dimensions, n, 4)) for n in range(4)]
    for name, dimension in (("rows", 0), ("columns", 1)):
        assert parts[0][name].shape[dimension] * 4 == weights.info(name).shape[dimension]
        assert torch.equal(torch.cat([p[name] for p in parts], dimension), weights.tensor(name))
    assert all(torch.equal(part["large"], weights.tensor("large")) for part in parts)


def test_a_ring_that_does_not_wait_for_the_card_would_be_found(folder, on_card, monkeypatch):
    on_card()
    monkeypatch.setattr(device_copy.CudaCopies, "mark", lambda _: None)
    weights = open_weights(folder)
    found = weights.to("cuda", ["large"], readers=2)
    assert not torch.equal(found["large"].as_subclass(torch.Tensor), weights.tensor("large"))


def test_buffers_go_round_in_their_order_and_only_when_the_card_has_read_them():
    waited = []

    class Copies:
        def __init__(self, name):
            self.name = name

        def synchronize(self):
            waited.append(self.name)

    ring = StagingRing(bytearray, bytearray, 8, 3)
    wait_until(lambda: len(ring._free) == 3, seconds=30, what="all buffers")
    buffers = [ring.take() for _ in range(3)]
    assert waited == [], "new ones are nobody's"
    for name in (1, 0, 2):
        ring.give(buffers[name], Copies(name))
    assert [ring.take() for _ in range(3)] == [buffers[1], buffers[0], buffers[2]]
    assert waited == [1, 0, 2]
    ring.stop()
    with pytest.raises(RingStoppedError):
        ring.take()


def test_an_error_of_the_disk_in_the_middle_leaves_nothing_behind(folder, on_card, monkeypatch):
    cuda, weights, fill = on_card(), open_weights(folder), block_reader._fill
    calls = []

    def fail(*arguments):
        calls.append(1)
        if len(calls) == 9:
            raise OSError(5, "Input/output error")
        fill(*arguments)

    monkeypatch.setattr(block_reader, "_fill", fail)
    with pytest.raises(OSError, match="Input/output") as caught:
        weights.to("cuda", ["large"])
    assert len(calls) < 9 + 4, "the others end with what they do"
    [stream] = cuda.streams
    assert stream.done == len(stream.asked) > 0, "no copy runs into memory that was given back"
    stream.asked.clear()
    caught.value.__traceback__ = None
    del caught
    assert_nothing_is_left(cuda)


def test_an_error_of_the_card_in_the_middle_is_told_and_leaves_nothing(folder, on_card):
    cuda, weights = on_card(failing_copy=5), open_weights(folder)
    with pytest.raises(RuntimeError, match="illegal memory access") as caught:
        weights.to("cuda", ["large"])
    [stream] = cuda.streams
    stream.asked.clear()
    caught.value.__traceback__ = None
    del caught
    assert_nothing_is_left(cuda)


def fail_above(limit):
    def pin(number, size):
        if number > limit:
            raise RuntimeError(f"CUDA error: out of memory ({size} bytes)")

    return pin


def test_C65_where_nothing_can_be_page_locked_copies_are_pageable_and_that_is_said(folder, on_card):
    cuda, weights = on_card(pin=fail_above(0)), open_weights(folder)
    with pytest.warns(modelcache.PageableWarning, match=r"80000 of 80000 bytes.*out of memory"):
        found = weights.to("cuda", ["large"])
    assert_same(found, weights.tensors(["large"]))
    assert weights.pageable_bytes == 80_000
    cuda.pin = lambda *_: None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(weights.to("cuda", ["large"]), weights.tensors(["large"]))
    assert weights.pageable_bytes == 80_000, "the refusal is not remembered"


def test_C65_some_page_locked_buffers_are_enough_and_that_is_said(folder, on_card):
    cuda, weights = on_card(pin=fail_above(2)), open_weights(folder)
    with pytest.warns(modelcache.PageableWarning, match=r"^0 of 80000 bytes"):
        assert_same(weights.to("cuda", ["large"]), weights.tensors(["large"]))
    assert cuda.peak_pinned_bytes == 2 * BUFFER


def test_C65_page_locking_that_takes_long_holds_nothing_up(folder, on_card, no_patience):
    released = threading.Event()
    cuda = on_card(pin=lambda *_: released.wait(60))
    weights = open_weights(folder)
    with pytest.warns(modelcache.PageableWarning, match="page-locking takes long"):
        found = weights.to("cuda", ["large"])
    assert not released.is_set()
    assert_same(found, weights.tensors(["large"]))
    released.set()
    cuda.streams[0].asked.clear()
    del found
    assert_nothing_is_left(cuda)
    assert cuda.pins == [BUFFER], "one at a time, and no more when nobody waits"


def test_C65_page_locks_are_small_few_and_never_of_nothing(folder, on_card, monkeypatch):
    cuda, weights = on_card(), open_weights(folder)
    weights.to("cuda", ["empty"])
    weights.to("cuda", [])
    weights.to("cpu")
    assert cuda.pins == []
    weights.to("cuda", ["odd"])
    assert cuda.pins == [8], "no more than the bytes need, as a power of two"
    monkeypatch.undo()
    assert bring._BUFFER_BYTES == 16 << 20
    with pytest.raises(ValueError, match="at least one byte"):
        StagingRing(bytearray, bytearray, 0, 4)


def test_a_device_that_is_not_there_is_named_with_what_to_do(folder, on_card):
    weights = open_weights(folder)
    on_card(cards=0)
    with pytest.raises(modelcache.NoDeviceError, match=r"no card of CUDA for 'cuda'.*'cpu'"):
        weights.to("cuda")
    on_card(cards=2)
    with pytest.raises(modelcache.NoDeviceError, match="no 'cuda:2': this process sees 2 cards"):
        weights.to("cuda:2")
    with pytest.raises(modelcache.NoDeviceError, match=r"'mps' is none of cpu, cuda and meta"):
        weights.to("mps")
    with pytest.raises(ValueError, match="readers=5: 2 to 4"):
        weights.to("cpu", readers=5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_torch_itself_says_that_there_is_no_card(folder):
    with pytest.raises(modelcache.NoDeviceError, match="no card of CUDA"):
        open_weights(folder).to("cuda")


def test_a_file_that_was_replaced_meanwhile_is_not_mixed_in(folder):
    weights, path = open_weights(folder), folder / "model.safetensors"
    save_file({"large": torch.zeros(20_000)}, folder / "new")
    (folder / "new").rename(path)
    with pytest.raises(modelcache.BadFileError, match=r"model\.safetensors: it was replaced"):
        weights.to("cpu", ["large"])
    path.unlink()
    with pytest.raises(modelcache.BadFileError, match="removed"):
        weights.to("cpu", ["large"])


def test_closed_weights_give_no_more(folder):
    weights = open_weights(folder)
    weights.close()
    for read in (weights.tensors, lambda: weights.to("cpu")):
        with pytest.raises(modelcache.ClosedError):
            read()


def test_the_stand_in_is_as_late_as_cuda_may_be():
    cuda = StandInCuda()
    stream = cuda.Stream(torch.device("cuda", 0))
    target = StandInTorch(cuda).empty(1, dtype=torch.uint8, device=torch.device("cuda"))
    source = torch.ones(1, dtype=torch.uint8)
    with cuda.stream(stream):
        target.copy_(source, non_blocking=True)
    event = stream.record_event()
    source.fill_(7)
    event.synchronize()
    assert target.as_subclass(torch.Tensor).tolist() == [7]
