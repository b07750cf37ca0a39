"""Which part of a tensor is wanted, and which bytes of the file that is."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache import SelectionError
from modelcache.cuts import make_blocks, make_cut, make_cuts, make_fills, split_tensors
from modelcache.header import TensorInfo

BEGIN = 24
DTYPES = {"U8": "u1", "F16": "<u2", "F32": "<u4", "F64": "<u8"}


def tensor(name="w", shape=(4, 6), dtype="F32"):
    size = math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
    return TensorInfo(name, dtype, shape, Path("model.safetensors"), BEGIN, size)


@st.composite
def cuts(draw):
    shape = tuple(draw(st.lists(st.integers(0, 7), max_size=4)))
    parts = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        start = draw(st.integers(0, size))
        parts.append(slice(start, draw(st.integers(start, size))))
    return tensor(shape=shape, dtype=draw(st.sampled_from(list(DTYPES)))), tuple(parts)


@given(cuts(), st.integers(8, 200))
def test_blocks_are_the_bytes_that_numpy_finds_and_no_others(drawn, most_bytes):
    info, parts = drawn
    file = np.random.default_rng(0).integers(0, 256, BEGIN + info.size_bytes, dtype=np.uint8)
    whole = file[BEGIN:].view(DTYPES[info.dtype]).reshape(info.shape)
    cut = make_cut(info, parts)
    found, read = np.zeros(cut.size_bytes, np.uint8), 0
    for block in make_blocks(cut, 0, most_bytes):
        assert 0 < block.size_bytes <= most_bytes
        at = block.target_offset
        for offset in block.runs():
            assert block.offset <= offset <= block.offset + block.span_bytes - block.run_bytes
            found[at : at + block.run_bytes] = file[offset : offset + block.run_bytes]
            at += block.run_bytes
        read += block.size_bytes
    assert found.tobytes() == whole[parts].tobytes()
    assert read == cut.size_bytes
    assert np.array_equal(whole[cut.index], whole[parts])


@given(st.lists(st.integers(0, 90), max_size=9), st.integers(8, 64))
def test_buffers_take_all_blocks_in_order_without_an_overlap(sizes, buffer_bytes):
    chosen = [make_cut(tensor(str(n), (size,), "U8"), None) for n, size in enumerate(sizes)]
    blocks = []
    for fill in make_fills(chosen, buffer_bytes):
        end = 0
        for block, at in fill:
            assert at == end
            end += block.size_bytes
        assert 0 < end <= buffer_bytes
        blocks += [block for block, _ in fill]
    expected = [b for n, cut in enumerate(chosen) for b in make_blocks(cut, n, buffer_bytes)]
    assert blocks == expected


def test_bytes_that_lie_together_are_one_block_whatever_the_shape():
    for wanted in (None, (0, 1, 3), slice(1, 3), (slice(1, 3), slice(None))):
        [block] = make_blocks(make_cut(tensor(), wanted), 0, 1 << 20)
        assert block.counts == ()
    [block] = make_blocks(make_cut(tensor(), (1, 2, 5)), 0, 1 << 20)
    assert (block.offset, block.run_bytes, block.counts) == (BEGIN + 8, 12, (4,))
    assert (block.strides_bytes, block.span_bytes) == ((24,), 3 * 24 + 12)


@pytest.mark.parametrize(
    ("wanted", "starts", "shape"),
    [
        ((0, 1, 3), (1, 0), (2, 6)),
        ((-1, 2, 4), (0, 2), (4, 2)),
        (slice(-3, None), (1, 0), (3, 6)),
        ((slice(None), slice(2, -1)), (0, 2), (4, 3)),
        ((1, 6, 6), (0, 6), (4, 0)),
    ],
    ids=str,
)
def test_a_part_is_named_as_torch_names_it(wanted, starts, shape):
    cut = make_cut(tensor(), wanted)
    assert (cut.starts, cut.shape) == (starts, shape)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ((0, 0, 5), r"no slice 0:5 in dimension 0: bounds go from 0 to 4"),
        ((1, 4, 3), r"no slice 4:3 in dimension 1"),
        (slice(-5, None), r"no slice -5:4 in dimension 0"),
        (slice(0, 4, 2), r"no slice 0:4:2 in dimension 0: .* in steps of 1"),
        ((2, 0, 1), r"no dimension 2: it has 2, counted from 0"),
        ((-3, 0, 1), r"no dimension -3"),
        ((slice(1),) * 3, r"no 3 dimensions: give at most 2 slices"),
        ((0, 1), r"\(0, 1\) is no slice"),
        ("rows", r"'rows' is no slice .* give \(dimension, start, stop\)"),
        (3, r"3 is no slice"),
    ],
    ids=str,
)
def test_what_a_tensor_does_not_have_is_said_with_its_name_and_shape(wanted, says):
    with pytest.raises(SelectionError, match=says):
        make_cut(tensor(), wanted)
    with pytest.raises(SelectionError, match=r"'w' of shape \(4, 6\)"):
        make_cut(tensor(), wanted)


def test_names_that_are_not_there_are_said_with_the_cure():
    infos = {name: tensor(name) for name in ("a", "b")}

    def choose(names=None, slices=None):
        return [cut.info.name for cut in make_cuts(infos, infos.__getitem__, names, slices)]

    assert choose() == ["a", "b"]
    assert choose("a") == choose(["a", "a"]) == ["a"]
    assert choose(slices={"b": (0, 0, 1)}) == ["a", "b"]
    for wrong in ({"names": ["a", "c"]}, {"slices": {"c": (0, 0, 1)}}):
        with pytest.raises(SelectionError, match=r"no tensor is named 'c': list\(weights\)"):
            choose(**wrong)
    with pytest.raises(
        SelectionError, match=r"'b' of shape \(4, 6\), which is not among the names"
    ):
        choose(["a"], {"b": (0, 0, 1)})


def test_the_parts_of_all_ranks_are_the_tensor():
    infos = [tensor("l.0.q.weight"), tensor("l.0.o.weight"), tensor("norm", (4,))]
    dimensions = {"*.q.weight": 0, "*.o.weight": -1, "*.weight": 0}
    parts = [split_tensors(infos, dimensions, rank, 2) for rank in range(2)]
    assert parts[0] == {"l.0.q.weight": (0, 0, 2), "l.0.o.weight": (1, 0, 3)}
    assert parts[1] == {"l.0.q.weight": (0, 2, 4), "l.0.o.weight": (1, 3, 6)}


def test_what_cannot_be_cut_equally_is_named():
    with pytest.raises(
        SelectionError, match=r"'w' of shape \(4, 6\) cannot be cut into 4 .*by hand"
    ):
        split_tensors([tensor()], {"*": 1}, 0, 4)
    with pytest.raises(SelectionError, match=r"'x\.\*': no tensor's name matches"):
        split_tensors([tensor()], {"*": 0, "x.*": 0}, 0, 2)
    with pytest.raises(SelectionError, match="no dimension 2"):
        split_tensors([tensor()], {"*": 2}, 0, 2)
    with pytest.raises(ValueError, match="rank=2: of 2 ranks the last one is 1"):
        split_tensors([tensor()], {"*": 0}, 2, 2)
