"""placement-share: of 200 pods of one Deployment with its Service, how many land on warm nodes.

Real API server, scheduler and operator; played nodes, 1,000 of them, 10 warm with room for all.
"ours" is the default (preferred affinity); beside it `required` (gate and requirement), and the
same Deployment without our label. The scheduler scores only a part of many nodes, and its own
spreading and balancing pull against any preference: this figure says by how much.

MODELCACHE_TRIAL=nodes:warm[:cpu] chooses another ground.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from figure import Figure, make_figure

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes.placement_trial import Trial, end_trial, make_ground, run_trial, share_on
from fakes.played_fleet import PlayedFleet
from fakes.stage import Stage
from modelcache_kube import ConnectConfig, connect
from modelcache_testbed.local_cluster import LocalCluster
from modelcache_testbed.seaweed import Seaweed
from modelcache_testbed.system import System

ROUNDS = 1
DEFAULT_GROUND = "1000:10"


def measure() -> Figure:
    nodes, warm, *cpu = os.environ.get("MODELCACHE_TRIAL", DEFAULT_GROUND).split(":")
    requests = {"cpu": cpu[0]} if cpu else {}
    trials = {
        "ours": Trial("preferred", requests=requests),
        "required": Trial("required", required=True, requests=requests),
        "without": Trial("without", cache=None, requests=requests),
    }
    samples = asyncio.run(_measure(int(nodes), int(warm), trials))
    return make_figure(
        "placement-share",
        "%",
        samples,
        notes=f"200 pods, {nodes} nodes, {warm} warm, requests {requests or 'none'}",
    )


async def _measure(nodes: int, warm: int, trials: dict[str, Trial]) -> dict[str, list[float]]:
    cluster, store = LocalCluster.ephemeral(), Seaweed.ephemeral()
    with tempfile.TemporaryDirectory() as folder:
        system = System(cluster, Path(folder) / "system")
        try:
            await asyncio.to_thread(lambda: cluster.up(ephemeral=True))
            await asyncio.to_thread(lambda: store.up(ephemeral=True))
            await asyncio.to_thread(system.install)
            await asyncio.to_thread(
                lambda: system.add_operator(extra=("--lease-list-interval=2s",))
            )
            kubeconfig = ConnectConfig(kubeconfig=cluster.kubeconfig)
            async with connect(kubeconfig) as kube, PlayedFleet(kube) as fleet:
                stage = Stage(cluster, store, system, kube, fleet, "share")
                stage.put_model()
                await stage.prepare()
                return await _run(stage, nodes, warm, trials)
        finally:
            await asyncio.to_thread(system.remove)
            await asyncio.to_thread(store.down)
            await asyncio.to_thread(cluster.down)


async def _run(
    stage: Stage, nodes: int, warm: int, trials: dict[str, Trial]
) -> dict[str, list[float]]:
    names = await make_ground(stage, nodes, warm)
    samples: dict[str, list[float]] = {key: [] for key in trials}
    for _ in range(ROUNDS):
        for key, trial in trials.items():
            found = await run_trial(stage, trial)
            samples[key].append(share_on(found, names))
            most = max(found.values())
            print(f"  {key:<10} {samples[key][-1]:6.1f} %   at most {most} on a node", flush=True)
            await end_trial(stage, trial)
    return samples
