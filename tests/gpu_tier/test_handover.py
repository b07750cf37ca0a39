"""A content that one process exports and another one maps, on either device."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import modelcache
from fakes.cuda_stand_in import environment_with
from fakes.device_processes import Importer, exporting
from fakes.device_world import digests_of_weights
from modelcache.gpu import import_weights
from modelcache.gpu.cuda_map import DeviceArray
from modelcache.header import TensorInfo
from modelcache.torch_view import view_on_device
from modelcache_api.device_layout import DeviceLayout, encode_layout, parse_layout

CUDA = pytest.param("cuda", id="cuda-vmm")
EMULATED = pytest.param("emulated", id="emulated")


@pytest.fixture
def exported(request, stand_in, tmp_path):
    with exporting(environment_with(stand_in), tmp_path, request.param) as found:
        yield found


def start_importer(stand_in, layout, descriptors):
    return Importer(environment_with(stand_in), layout, descriptors)


@pytest.mark.parametrize("exported", [EMULATED, CUDA], indirect=True)
def test_tensors_are_right_in_another_process_also_after_the_exporter_was_killed(
    exported, stand_in, tmp_path
):
    exporter, layout, descriptors = exported
    importer = start_importer(stand_in, layout, descriptors)
    assert importer.ask("digest") == digests_of_weights(tmp_path)
    exporter.send_signal(signal.SIGKILL)
    exporter.wait(60)
    assert importer.ask("digest") == digests_of_weights(tmp_path)
    importer.close()
    late = start_importer(stand_in, layout, descriptors)
    assert late.ask("digest") == digests_of_weights(tmp_path), (
        "descriptors outlive the exporter, too"
    )
    late.close()


@pytest.mark.parametrize("exported", [EMULATED], indirect=True)
def test_emulated_tensors_are_torchs_and_writing_to_them_harms_the_writer_alone(
    exported, stand_in, tmp_path
):
    _, layout, descriptors = exported
    assert parse_layout(layout).is_emulated
    assert parse_layout(layout).device.startswith("EMULATED-")
    tensors = import_weights(layout, [os.dup(fd) for fd in descriptors]).tensors()
    gc.collect()
    writer = start_importer(stand_in, layout, descriptors)
    assert writer.ask("write") is None
    assert writer.process.wait(60) == -signal.SIGSEGV
    writer.process.stdin.close()
    found = [hashlib.sha256(tensors[name].numpy().tobytes()).hexdigest() for name in ("w0", "w1")]
    assert found == digests_of_weights(tmp_path)


def test_importing_the_client_costs_neither_torch_nor_the_drivers_bindings():
    code = (
        "import sys, modelcache.gpu; print({'torch', 'numpy', 'cuda', 'pynvml'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_torch_without_the_device_says_so():
    info = TensorInfo("w", "F32", (1,), Path("w"), 256, 4)
    with pytest.raises(modelcache.DeviceMapError, match="torch cannot use cuda:99"):
        view_on_device(info, DeviceArray(None, 4096, 4), "cuda:99")


@pytest.mark.parametrize("exported", [CUDA], indirect=True)
def test_what_is_mapped_of_a_card_is_read_only_described_and_given_back(
    exported, stand_in, tmp_path
):
    _, layout, descriptors = exported
    importer = start_importer(stand_in, layout, descriptors)
    length, kind, at, offset = importer.ask("array")
    assert (kind, at) == ("|u1", offset)
    assert length == 9 << 20
    assert offset % 256 == 0, "tensors begin aligned"
    assert importer.ask("write") == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert importer.ask("digest") == digests_of_weights(tmp_path)
    assert set(importer.ask("drop").values()) == {0}
    importer.close()


@pytest.mark.parametrize("exported", [CUDA], indirect=True)
def test_a_process_that_cannot_map_it_is_told_why(exported, stand_in, no_driver):
    _, layout, descriptors = exported
    other = layout.replace(b"GPU-01", b"GPU-99")
    reasons = {
        "the bytes are on GPU-99": (environment_with(stand_in), other, descriptors),
        "descriptors came for": (environment_with(stand_in), layout, descriptors[1:]),
        "cuMemSetAccess": (environment_with(stand_in, cuda="readonly=0"), layout, descriptors),
        "cuInit": (environment_with(no_driver), layout, descriptors),
    }
    for reason, process in reasons.items():
        importer = Importer(*process)
        found = importer.read()
        assert found["refused"].startswith("DeviceMapError: ")
        assert reason in found["refused"]
        importer.close()


def test_a_layout_that_promises_more_than_the_descriptors_have_is_refused():
    fd = os.memfd_create("short")
    os.truncate(fd, 4096)
    layout = DeviceLayout("EMULATED-1", True, "sha256:0", (8192,), ())
    with pytest.raises(modelcache.DeviceMapError, match="less than 8192 bytes"):
        import_weights(encode_layout(layout), [fd])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
