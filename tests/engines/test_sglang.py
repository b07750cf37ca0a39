"""SGLang on the mounted path: its own formats, and ours through its plug-in mechanism."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sglang.srt.plugins import load_plugins

import modelcache


@pytest.fixture
def make_loader(monkeypatch):
    load_plugins()
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.model_loader import loader

    # What a worker takes from its command line.
    flags = SimpleNamespace(
        model_checksum=None,
        weight_loader_disable_mmap=False,
        weight_loader_prefetch_checkpoints=False,
        weight_loader_prefetch_num_threads=1,
        weight_loader_drop_cache_after_load=False,
    )
    monkeypatch.setattr(loader, "get_server_args", lambda: None)
    monkeypatch.setattr(loader, "get_model", lambda: flags)
    return lambda load_format: loader.get_model_loader(LoadConfig(load_format=load_format))


def read(loader, path):
    return dict(loader._get_weights_iterator(loader.Source(str(path), None)))


def test_our_format_is_among_the_choices_of_its_command_line(make_loader):
    from sglang.srt.arg_groups.choices import LOAD_FORMAT_CHOICES

    assert "modelcache" in LOAD_FORMAT_CHOICES


@pytest.mark.parametrize("load_format", ["auto", "safetensors", "modelcache"])
def test_it_reads_the_mounted_folder(make_loader, model, volume, assert_loaded, load_format):
    (volume / "model" / "consolidated.safetensors").unlink()
    loader = make_loader(load_format)
    model.load_weights(read(loader, volume / "model").items())
    assert_loaded()


def test_our_loader_waits_for_the_pods_model_and_takes_it_by_its_name_on_the_hub(
    make_loader, model, volume, assert_loaded
):
    loader = make_loader("modelcache")
    assert type(loader).__module__ == "modelcache.engines.sglang"
    model.load_weights(read(loader, "org/name").items())
    assert_loaded()


def test_another_model_than_the_pods_is_an_error_that_names_both(make_loader, volume):
    with pytest.raises(modelcache.NoVolumeError, match=r"org/other .*search/name"):
        read(make_loader("modelcache"), "org/other")


def test_other_formats_are_still_checked(make_loader):
    with pytest.raises(ValueError, match="no-such-format"):
        make_loader("no-such-format")
