"""The two ends of a handover, each in a process of its own.

python -m fakes.device_peers export FOLDER SOCKET KIND    holds a content until it is killed
python -m fakes.device_peers import LAYOUT FD...          maps it and does what stdin says
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
from pathlib import Path

from fakes.device_world import MIB, POD, HandClock, a_content
from modelcache.errors import ModelCacheError
from modelcache.gpu import import_weights
from modelcache_agent.decide.gpu.arena import Shape
from modelcache_agent.decide.gpu.extents import ExtentRules
from modelcache_agent.tiers.gpu.cuda_vmm import CudaDevice
from modelcache_agent.tiers.gpu.emulated import EmulatedDevice
from modelcache_agent.tiers.gpu.tier import GpuTier
from modelcache_api.device_layout import encode_layout


def export(folder, address, kind):
    device = EmulatedDevice(Shape(64 * MIB)) if kind == "emulated" else CudaDevice()
    device.rules = ExtentRules(device.rules.granularity_bytes, 4 * MIB)
    tier = GpuTier(lambda: device, 1 << 40, HandClock())
    tier.look()
    content = a_content(Path(folder), "v1", 9 * MIB, MIB // 2)
    tier.promote(content)
    handover = tier.attach(content.key, POD, frozenset({device.identity.uuid}))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(address)
        layout = encode_layout(handover.layout)
        socket.send_fds(connection, [len(layout).to_bytes(4, "big") + layout], handover.descriptors)
    sys.stdin.read()


def receive(listener):
    """Layout and descriptors that an exporting process sends."""
    connection, _ = listener.accept()
    with connection:
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 253)
        assert len(data) == 4 + int.from_bytes(data[:4], "big")
        return data[4:], descriptors


def import_(layout, *descriptors):
    """Answer each line of stdin with a line: what was done, or why not."""
    try:
        weights = import_weights(layout.encode(), [int(fd) for fd in descriptors])
    except ModelCacheError as error:
        print(json.dumps({"refused": f"{type(error).__name__}: {error}"}), flush=True)
        return
    for line in sys.stdin:
        print(json.dumps(DEEDS[line.strip()](weights)), flush=True)


def digest(weights):
    return [hashlib.sha256(weights.copy_to_host(name)).hexdigest() for name in sorted(weights)]


def array(weights):
    info = weights.info("w0")
    found = weights._map.array(info).__cuda_array_interface__
    return [
        *found["shape"],
        found["typestr"],
        found["data"][0] - weights._map._address,
        info.offset,
    ]


def write(weights):
    """Write through the map; the answer is what happened, if anything can still answer."""
    if weights.is_emulated:
        weights._map.buffer[0] = 1
        return "written"
    driver = weights._map._call.api
    target = driver.CUdeviceptr(weights._map._address)
    (error,) = driver.cuMemcpyHtoD(target, b"spoiled!", 8)
    return error.name


def spoil(weights):
    """Write through a tensor of torch; the answer is the error, or None if nothing objected."""
    import torch

    tensor = weights.tensor("w0")
    try:
        tensor.fill_(1.0)
        torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error)
    return None


def matmul(weights):
    """How far a product on the device is from the same one on the host, relatively."""
    import torch

    tensor = torch.nan_to_num(weights.tensor("w0")[: 512 * 512].reshape(512, 512).clamp(-1, 1))
    right = tensor.cpu().double() @ tensor.cpu().double()
    found = (tensor @ tensor).cpu().double()
    scale = right.abs().max().clamp(min=1)
    return [str(tensor.device), float((found - right).abs().max() / scale)]


def drop(weights):
    """Give the map up, and say what is left of it."""
    from fakes.cuda_stand_in import live_objects

    weights._map._end()
    return live_objects()


DEEDS = {
    "digest": digest,
    "array": array,
    "write": write,
    "drop": drop,
    "matmul": matmul,
    "spoil": spoil,
}


if __name__ == "__main__":
    {"export": export, "import": import_}[sys.argv[1]](*sys.argv[2:])
