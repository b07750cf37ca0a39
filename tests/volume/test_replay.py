"""Five hundred attaches on a live agent: each of its decisions is made again from its input log."""

from __future__ import annotations

import os
import random
import subprocess
import sys

from fakes.agent_bench import open_bench
from fakes.fetch_world import safetensors_body
from fakes.played_kubelet import Pod
from fakes.volume_world import PlayedPods
from modelcache_agent.inputs.records import Decided, Happening, read_records
from modelcache_agent.inputs.replay import summarize

KIB = 1 << 10
MODELS = [f"m{number}" for number in range(6)]
ATTACHES, BATCH = 500, 100


def replay_elsewhere(log, hash_seed) -> str:
    """What another process says: sets there have another order."""
    done = subprocess.run(
        [sys.executable, "-m", "modelcache_agent.entry", "replay", str(log)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_500_attaches_are_decided_alike_when_their_log_is_replayed(tmp_path, monkeypatch):
    # Five hundred volumes' worth of waiting for the disk proves nothing here.
    monkeypatch.setattr(os, "fsync", lambda _file: None)
    script = random.Random(7)
    with open_bench(tmp_path) as bench:
        bench.capacity = 4 * 300 * KIB
        for seed, uid in enumerate(MODELS):
            bench.offer(uid, {"model.safetensors": safetensors_body(256 * KIB, seed)})
        entries = [bench.entry(uid, evictable=True) for uid in MODELS]
        caches = {f"search/{uid}": uid for uid in MODELS}
        pods = PlayedPods(bench.root, tmp_path / "kubelet")
        gone = tmp_path / "gone"
        gone.mkdir()
        async with bench.started("--disk-policy=value", "--input-log=64Mi"):
            bench.cluster.want(*entries, caches=caches)
            for first in range(0, ATTACHES, BATCH):
                # Pods of three models at a time: what they do not use has to give way.
                chosen = script.sample(MODELS, 3)
                batch = [
                    Pod(uid=f"pod-{first + number}", cache=script.choice(chosen))
                    for number in range(BATCH)
                ]
                volumes = [pods.add(pod) for pod in batch]
                await bench.until(
                    lambda volumes=volumes: all(volume.is_ready for volume in volumes),
                    "all volumes of the batch",
                )
                for pod in batch:
                    (bench.root / "pods" / pod.uid).rename(gone / pod.uid)
        log = bench.root / "inputs" / "current.jsonl"
        records = list(read_records(log.read_text().splitlines()))
        attaches = [r for r in records if isinstance(r, Happening) and r.kind == "attach"]
        assert len(attaches) == ATTACHES
        assert {one.size_bytes for one in attaches} != {None}
        decided = [r for r in records if isinstance(r, Decided)]
        assert len({one.plan_hash for one in decided}) > 10
        assert any(one.world.condemned for one in decided), "some had to give way"
        assert summarize(log.read_text().splitlines()).differences == 0
        for seed in ("1", "2"):
            told = replay_elsewhere(log, seed)
            assert f"{len(decided)} decisions, 500 attaches: all decided alike" in told
