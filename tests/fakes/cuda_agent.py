"""The whole agent in a process whose CUDA driver is the stand-in, and a pod that maps its card."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from fakes.agent_bench import open_bench
from fakes.cuda_stand_in import live_objects
from fakes.fetch_world import safetensors_body
from fakes.kubelet_devices import kubelet_gives
from fakes.played_kubelet import Pod
from fakes.volume_world import PlayedPods
from modelcache_api.names import Tier

CARD = "GPU-01020304-0506-0708-090a-0b0c0d0e0f00"
READER = Pod(cache="m")
# The way of a tensor into another process: by the library, the socket and the driver.
READ = """
import hashlib, json, sys
import modelcache
found = modelcache.attach(root=sys.argv[1], on_miss="raise").version().on_device()
read = {} if found is None else {
    name: hashlib.sha256(found.copy_to_host(name)).hexdigest() for name in found
}
print(json.dumps([read, found is not None and found.device]))
"""


async def life(folder: Path) -> dict[str, object]:
    """Load, label, hand over, lose the driver, get it back."""
    with open_bench(folder) as bench, kubelet_gives(folder / "kubelet.sock") as given:
        bench.offer("v1", {"model.safetensors": safetensors_body(3 << 20, 0), "config.json": b"{}"})
        entry = bench.entry("v1").model_copy(update={"tier": Tier.GPU})
        bench.cluster.want(entry, caches={f"{READER.namespace}/m": "v1"})
        given[(READER.namespace, READER.name)] = [CARD]
        told: dict[str, object] = {}

        def is_labelled() -> bool:
            bench.cluster.nudge()
            return bench.cluster.on_device == {entry.label_key}

        options = ("--gpu-capacity=64Mi", f"--pod-resources={folder}/kubelet.sock")
        async with bench.started(*options):
            await bench.until(is_labelled, "the label", 60)
            told["summary"] = bench.cluster.status.gpu_summary
            told["during"] = live_objects()
            volume = PlayedPods(bench.root, folder / "kubelet").add(READER)
            await bench.until(lambda: volume.folder.socket.exists() and volume.is_ready, "it", 60)
            told["read"] = await asyncio.to_thread(_read, volume.folder.content)
            os.environ["STANDIN_NVML"] = "init=18"
            bench.cluster.nudge()
            await bench.until(lambda: not bench.cluster.on_device, "the label to fall", 60)
            lost = bench.cluster.entry("v1")
            told["lost"] = [lost.state, lost.tier, lost.reason, lost.message]
            told["labels"] = len(bench.cluster.labels)
            os.environ["STANDIN_NVML"] = ""
            await bench.until(is_labelled, "the driver to be tried again", 60)
        told["after"] = live_objects()
        return told


def _read(content: Path) -> object:
    ran = subprocess.run(
        [sys.executable, "-c", READ, str(content)], capture_output=True, text=True, check=False
    )
    return json.loads(ran.stdout) if ran.returncode == 0 else ran.stderr


def main(folder: str) -> None:
    # The agent waits half a minute before it tries a card again.
    import modelcache_agent.decide.gpu.health as health  # noqa: PLR0402

    health._FIRST_SECONDS = 0.2
    print(json.dumps(asyncio.run(life(Path(folder)))))


if __name__ == "__main__":
    main(sys.argv[1])
