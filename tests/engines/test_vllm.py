"""vLLM on the mounted path: its own formats, and ours through its plug-in mechanism."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from vllm.config.load import LoadConfig
from vllm.model_executor.model_loader import get_model_loader
from vllm.plugins import load_general_plugins

import modelcache


@pytest.fixture
def load(model, monkeypatch):
    """Load as a worker does, without its distributed environment."""
    load_general_plugins()

    def run(path, load_format):
        loader = get_model_loader(LoadConfig(load_format=load_format, use_tqdm_on_load=False))
        monkeypatch.setattr(loader, "_init_ep_weight_filter", lambda _: None, raising=False)
        config = SimpleNamespace(
            model=str(path),
            model_weights="",
            revision=None,
            quantization=None,
            multimodal_config=None,
        )
        loader.download_model(config)
        loader.load_weights(model, config)
        return loader

    return run


@pytest.mark.parametrize("load_format", ["auto", "safetensors", "runai_streamer"])
def test_its_own_formats_read_the_mounted_folder(load, volume, assert_loaded, load_format):
    (volume / "model" / "consolidated.safetensors").unlink()
    load(volume / "model", load_format)
    assert_loaded()


@pytest.mark.parametrize("named", ["path", "hub name"])
def test_our_format_is_found_by_vllm_itself_and_loads_the_pods_model(
    load, volume, assert_loaded, named
):
    loader = load(volume / "model" if named == "path" else "org/name", "modelcache")
    assert type(loader).__module__ == "modelcache.engines.vllm"
    assert_loaded()


def test_another_model_than_the_pods_is_an_error_that_names_both(load, volume):
    with pytest.raises(modelcache.NoVolumeError, match=r"org/other .*search/name.*/model"):
        load("org/other", "modelcache")


def test_a_plain_folder_is_loaded_too(load, volume, assert_loaded, monkeypatch):
    monkeypatch.delenv("MODELCACHE_PATH")
    load(volume / "model", "modelcache")
    assert_loaded()


def test_sources_beside_the_model_keep_prefix_folder_and_patterns(volume, tensors):
    load_general_plugins()
    loader = get_model_loader(LoadConfig(load_format="modelcache"))
    source = loader.Source(
        str(volume), None, "model", "draft.", allow_patterns_overrides=["consolidated*"]
    )
    assert {name for name, _ in loader._get_weights_iterator(source)} == {
        f"draft.{name}" for name in tensors
    }
