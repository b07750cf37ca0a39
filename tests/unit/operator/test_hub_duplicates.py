"""Which files are left out where a version names no include."""

from __future__ import annotations

import pytest

from modelcache_operator.sources.hub.duplicates import find_duplicates

SENTENCES = {
    ".gitattributes": False,
    "README.md": True,
    "config.json": True,
    "model.safetensors": True,
    "pytorch_model.bin": False,
    "rust_model.ot": False,
    "tf_model.h5": False,
    "tokenizer.json": True,
    "1_Pooling/config.json": True,
    "2_Dense/pytorch_model.bin": True,
    "3_Dense/model.safetensors": True,
    "3_Dense/pytorch_model.bin": False,
    "onnx/model.onnx": False,
    "onnx/model.onnx_data": False,
    "openvino/openvino_model.bin": False,
    "openvino/openvino_model.xml": False,
}
SHARDS = {
    "model-00001-of-00002.safetensors": True,
    "model-00002-of-00002.safetensors": True,
    "model.safetensors.index.json": True,
    "pytorch_model-00001-of-00002.bin": False,
    "pytorch_model.bin.index.json": False,
    "original/consolidated.00.pth": False,
    "original/params.json": False,
    "original/tokenizer.model": False,
    "model.Q4_K_M.gguf": False,
    "training_args.bin": False,
    "flax_model.msgpack": False,
}
PIPELINE = {
    "model_index.json": True,
    "unet/diffusion_pytorch_model.bin": True,
    "vae/diffusion_pytorch_model.safetensors": True,
    "vae/diffusion_pytorch_model.bin": False,
    "vae/onnx/model.onnx": False,
    "vae_decoder/model.onnx": True,
}
WITHOUT = {
    ".gitattributes": True,
    "pytorch_model.bin": True,
    "tf_model.h5": True,
    "onnx/model.onnx": True,
    "original/consolidated.00.pth": True,
    "original.txt": True,
}


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param(SENTENCES, id="sentence encoder: a part that has only .bin keeps it"),
        pytest.param(SHARDS, id="a large language model with everything beside"),
        pytest.param(PIPELINE, id="a pipeline: each part by itself"),
        pytest.param(WITHOUT, id="no safetensors, so nothing is left out"),
        pytest.param({"original/model.safetensors": True}, id="safetensors in original alone"),
        pytest.param({}, id="nothing"),
    ],
)
def test_only_what_repeats_safetensors_beside_it_is_left_out(expected):
    left_out = find_duplicates(expected)
    assert {path: path not in left_out for path in expected} == expected
