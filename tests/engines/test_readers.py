"""Readers of weights that know nothing of ModelCache, on the mounted folder."""

from __future__ import annotations

import pytest
import torch


def test_run_ai_model_streamer(volume, tensors):
    from runai_model_streamer import SafetensorsStreamer

    files = sorted(str(path) for path in (volume / "model").glob("model-*.safetensors"))
    with SafetensorsStreamer() as streamer:
        streamer.stream_files(files)
        found = {name: tensor.clone() for name, tensor in streamer.get_tensors()}
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_fastsafetensors_on_the_cpu(volume, tensors):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    files = sorted(str(path) for path in (volume / "model").glob("model-*.safetensors"))
    loader = SafeTensorsFileLoader(SingleGroup(), torch.device("cpu"), nogds=True)
    try:
        loader.add_filenames({0: files})
        buffers = loader.copy_files_to_device()
        found = {name: buffers.get_tensor(name).clone() for name in buffers.key_to_rank_lidx}
        buffers.close()
    finally:
        loader.close()
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


@pytest.fixture
def pipeline(tmp_path):
    """A pipeline's folder: a part per sub-folder, each with weights of its own."""
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

    torch.manual_seed(0)
    unet = UNet2DModel(
        sample_size=8,
        block_out_channels=(32, 32),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        layers_per_block=1,
    )
    DDPMPipeline(unet, DDPMScheduler()).save_pretrained(tmp_path / "model")
    return tmp_path / "model", unet


def test_diffusers_loads_a_pipeline_and_the_library_its_parts(pipeline):
    from diffusers import DDPMPipeline

    import modelcache

    folder, unet = pipeline
    found = DDPMPipeline.from_pretrained(folder).unet.state_dict()
    ours = modelcache.attach_folder(folder).version().tensors("unet")
    for name, expected in unet.state_dict().items():
        assert torch.equal(found[name], expected)
        assert torch.equal(ours[name], expected)
