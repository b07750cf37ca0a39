"""Tensors on shared pages: every type, shape and layout that files have."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import modelcache
from modelcache import file_map
from modelcache_api.safetensors_format import DTYPE_BITS, MAX_HEADER_BYTES

TORCH_TYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def write_raw(path, entries, data=b"", pad=True):
    """A file with exactly these header entries."""
    header = json.dumps(entries).encode()
    if pad:
        header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


def open_weights(folder, **options):
    return modelcache.attach_folder(folder).version().safetensors(**options)


@pytest.fixture
def every_type(tmp_path):
    random = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) % 2
    tensors = {str(dtype): random.to(dtype).clone() for dtype in TORCH_TYPES}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path


def test_C25_every_type_is_what_the_reference_reader_finds(every_type):
    weights = open_weights(every_type)
    expected = load_file(every_type / "model.safetensors")
    assert set(weights) == set(expected)
    for name, tensor in weights.tensors().items():
        assert tensor.dtype == expected[name].dtype
        assert torch.equal(tensor.view(torch.uint8), expected[name].view(torch.uint8))
    assert weights.metadata == {"format": "pt"}


def test_C25_a_type_that_a_library_lacks_is_said_and_its_bytes_are_there(tmp_path):
    data = bytes(range(8))
    write_raw(
        tmp_path / "model.safetensors",
        {
            "packed": {"dtype": "F4", "shape": [2, 8], "data_offsets": [0, 8]},
            "half": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]},
        },
        data,
    )
    weights = open_weights(tmp_path)
    assert bytes(weights.raw("packed")) == data
    with pytest.raises(modelcache.UnsupportedDtypeError, match=r"F4 of tensor 'packed'.*raw"):
        weights.tensor("packed")
    with pytest.raises(modelcache.UnsupportedDtypeError, match=r"BF16 of tensor 'half'"):
        weights.numpy("half")


def test_C25_no_type_of_the_format_is_without_an_answer(tmp_path):
    for dtype, bits in DTYPE_BITS.items():
        entry = {"dtype": dtype, "shape": [8], "data_offsets": [0, bits]}
        write_raw(tmp_path / "model.safetensors", {"x": entry}, bytes(bits))
        weights = open_weights(tmp_path)
        assert weights.info("x").size_bytes == bits
        for read in (weights.tensor, weights.numpy):
            try:
                found = read("x")
            except modelcache.UnsupportedDtypeError:
                continue
            assert tuple(found.shape) == (8,)


def test_C26_empty_tensors_scalars_and_a_file_without_tensors(tmp_path):
    save_file(
        {
            "between": torch.zeros(0, 7),
            "scalar": torch.tensor(3.5),
            "end": torch.zeros(0, dtype=torch.bfloat16),
            "first": torch.ones(2),
        },
        tmp_path / "model.safetensors",
    )
    found = open_weights(tmp_path).tensors()
    assert (found["between"].shape, found["end"].shape) == ((0, 7), (0,))
    assert found["scalar"].shape == ()
    assert found["scalar"].item() == 3.5
    write_raw(tmp_path / "model.safetensors", {})
    assert open_weights(tmp_path).tensors() == {}


def test_C29_files_around_the_size_of_a_block_are_equal_byte_for_byte(tmp_path, monkeypatch):
    block = 4096
    monkeypatch.setattr(file_map, "_READ_BYTES", block)
    monkeypatch.setattr(file_map.mmap, "mmap", refuse_to_map)
    for size in (0, 1, block - 1, block, block + 1, 2 * block + 17):
        data = os.urandom(size)
        entry = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
        write_raw(tmp_path / "model.safetensors", {"x": entry}, data)
        with pytest.warns(modelcache.CopiedWarning):
            weights = open_weights(tmp_path)
        assert bytes(weights.raw("x")) == data


def refuse_to_map(*_, **__):
    raise OSError(19, "No such device")


def test_C28_without_mmap_the_bytes_are_copied_loudly_and_counted(every_type, monkeypatch):
    monkeypatch.setattr(file_map.mmap, "mmap", refuse_to_map)
    with pytest.warns(modelcache.CopiedWarning, match="cannot map"):
        weights = open_weights(every_type)
    assert weights.copied_bytes == (every_type / "model.safetensors").stat().st_size
    expected = load_file(every_type / "model.safetensors")
    assert torch.equal(weights.tensor("torch.float32"), expected["torch.float32"])


def test_C28_a_file_that_is_removed_or_replaced_is_read_to_the_end(every_type):
    path = every_type / "model.safetensors"
    expected = load_file(path)["torch.float64"].clone()
    tensor = open_weights(every_type).tensor("torch.float64")
    fresh = write_raw(every_type / "fresh", {})
    fresh.replace(path)
    path.unlink()
    assert torch.equal(tensor, expected)


def test_C28_a_file_shorter_than_its_header_says_is_refused_before_a_page_is_touched(every_type):
    path = every_type / "model.safetensors"
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(modelcache.BadFileError, match=r"model\.safetensors: tensor .* claims"):
        open_weights(every_type).tensors()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "ends after 0 bytes"),
        (b"<html>not a model at all</html>", "safetensors allows 100000000"),
        ((50).to_bytes(8, "little") + b"{}", "the file has only 10"),
        ((2).to_bytes(8, "little") + b"{]", "not JSON"),
        ((2).to_bytes(8, "little") + b"[]", "not an object"),
    ],
)
def test_what_is_no_safetensors_file_is_named(tmp_path, content, said):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(modelcache.BadFileError, match=said):
        open_weights(tmp_path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
        {"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]},
        {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F4", "shape": [1], "data_offsets": [0, 0]},
        {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]},
        {"shape": [2], "data_offsets": [0, 8]},
        [],
        7,
    ],
)
def test_an_entry_that_lies_is_an_error_and_never_a_tensor(tmp_path, entry):
    write_raw(tmp_path / "model.safetensors", {"x": entry}, bytes(8))
    with pytest.raises(modelcache.BadFileError):
        open_weights(tmp_path).tensor("x")


def test_C24_a_header_at_the_limit_is_read_and_one_over_it_is_refused_with_the_limit(tmp_path):
    path = tmp_path / "model.safetensors"
    entry = {"x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}
    header = json.dumps(entry).encode().ljust(MAX_HEADER_BYTES)
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\x07")
    assert bytes(open_weights(tmp_path).raw("x")) == b"\x07"
    with path.open("r+b") as file:
        file.write((MAX_HEADER_BYTES + 1).to_bytes(8, "little"))
    with pytest.raises(modelcache.BadFileError, match="100000001 bytes, safetensors allows"):
        open_weights(tmp_path)


def test_C24_many_tensors_open_and_each_is_found(tmp_path):
    count = 100_000
    entries = {
        f"layer.{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
        for i in range(count)
    }
    write_raw(tmp_path / "model.safetensors", entries, bytes(i % 251 for i in range(count)))
    weights = open_weights(tmp_path)
    assert len(weights) == count
    assert bytes(weights.raw("layer.99999")) == bytes([99_999 % 251])


def shard(folder, name, **tensors):
    save_file(tensors, folder / name)


def test_C27_the_index_decides_and_the_second_layout_is_left_alone(tmp_path):
    shard(tmp_path, "model-00001-of-00002.safetensors", a=torch.ones(2))
    shard(tmp_path, "model-00002-of-00002.safetensors", b=torch.ones(3))
    shard(tmp_path, "consolidated.safetensors", a=torch.zeros(2), b=torch.zeros(3))
    index = {
        "weight_map": {
            "a": "model-00001-of-00002.safetensors",
            "b": "model-00002-of-00002.safetensors",
        }
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    weights = open_weights(tmp_path)
    assert [path.name for path in weights.files] == sorted(index["weight_map"].values())
    assert weights.tensor("b").sum() == 3


def test_C27_two_layouts_without_an_index_are_not_guessed_but_asked(tmp_path):
    shard(tmp_path, "model-00001-of-00001.safetensors", a=torch.ones(2))
    shard(tmp_path, "consolidated.safetensors", a=torch.zeros(2))
    with pytest.raises(modelcache.LayoutError, match=r"'consolidated.*files=\[\.\.\.\]"):
        open_weights(tmp_path)
    assert open_weights(tmp_path, files=["consolidated.safetensors"]).tensor("a").sum() == 0


def test_shards_that_are_not_whole_make_no_model(tmp_path):
    shard(tmp_path, "model-00001-of-00002.safetensors", a=torch.ones(2))
    with pytest.raises(modelcache.LayoutError, match="no safetensors file"):
        open_weights(tmp_path)


@pytest.mark.parametrize("target", ["../secret.safetensors", "absent.safetensors", 7])
def test_an_index_leads_nowhere_but_into_its_folder(tmp_path, target):
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": target}})
    )
    with pytest.raises(modelcache.BadFileError):
        open_weights(tmp_path)


def test_a_tensor_in_two_files_is_refused(tmp_path):
    shard(tmp_path, "a.safetensors", x=torch.ones(1))
    shard(tmp_path, "b.safetensors", x=torch.ones(1))
    with pytest.raises(modelcache.BadFileError, match="'x' is in another file"):
        open_weights(tmp_path, files=["a.safetensors", "b.safetensors"])


def test_a_part_of_a_pipeline_is_opened_by_its_folder(tmp_path):
    (tmp_path / "unet").mkdir()
    shard(tmp_path / "unet", "diffusion_pytorch_model.safetensors", w=torch.ones(4))
    assert modelcache.attach_folder(tmp_path).version().tensors("unet")["w"].sum() == 4


def test_tensors_keep_their_map_when_everything_else_is_gone(every_type):
    expected = load_file(every_type / "model.safetensors")["torch.float32"].clone()
    tensor = open_weights(every_type).tensor("torch.float32")
    gc.collect()
    assert torch.equal(tensor, expected)


def test_writing_in_place_is_private_counted_and_seen_by_nobody_else(tmp_path):
    save_file({"w": torch.zeros(1 << 20)}, tmp_path / "model.safetensors")
    mine, others = open_weights(tmp_path), open_weights(tmp_path)
    tensor = mine.tensor("w")
    assert mine.private_bytes() == 0
    tensor[: 1 << 18].fill_(7.0)
    assert tensor.sum() == 7 * (1 << 18)
    assert others.tensor("w").sum() == 0
    assert load_file(tmp_path / "model.safetensors")["w"].sum() == 0
    assert 1 << 20 <= mine.private_bytes() <= (1 << 20) + (1 << 16)


def test_strictly_read_only_refuses_the_write(every_type):
    weights = open_weights(every_type, read_only=True)
    with pytest.raises(ValueError, match="read-only"):
        weights.numpy("torch.float32")[0] = 1
    with pytest.raises(TypeError):
        weights.raw("torch.float32")[0] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it knows no read-only tensors
        assert weights.tensor("torch.float32").shape == (2, 3, 4)


def test_data_behind_a_header_without_padding_is_right_all_the_same(tmp_path):
    data = np.arange(4, dtype="<f4").tobytes()
    entry = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    for name in ("x", "xy", "xyz"):
        write_raw(tmp_path / "model.safetensors", {name: entry}, data, pad=False)
        assert open_weights(tmp_path).tensor(name).tolist() == [0, 1, 2, 3]
        assert open_weights(tmp_path).numpy(name).tolist() == [0, 1, 2, 3]


def test_C57_many_readers_share_one_copy(tmp_path):
    size = 64 << 20
    save_file({"w": torch.ones(size // 4)}, tmp_path / "model.safetensors")
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    try:
        touched = [json.loads(reader.stdout.readline()) for reader in readers]
        for reader in readers:
            reader.stdin.write(b"\n")
            reader.stdin.flush()
        shares = [json.loads(reader.stdout.readline()) for reader in readers]
    finally:
        for reader in readers:
            reader.stdin.close()
            reader.wait(timeout=60)
            reader.stdout.close()
    assert touched == [size // 4] * 4
    assert sum(shares) < 1.2 * size


READER = """
import json, sys
import numpy
import modelcache
weights = modelcache.attach_folder(sys.argv[1]).version().safetensors()
print(json.dumps(int(weights.numpy("w").sum(dtype=numpy.float64))), flush=True)
sys.stdin.readline()
found, share = False, 0
for line in open("/proc/self/smaps"):
    fields = line.split()
    if not fields[0].endswith(":"):
        found = line.rstrip().endswith("model.safetensors")
    elif found and fields[0] == "Pss:":
        share += int(fields[1]) * 1024
print(json.dumps(share), flush=True)
sys.stdin.readline()
"""
