"""Five hundred attaches on a live agent: decided alike in replay, and waits predicted."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from fakes.agent_bench import open_bench
from fakes.fetch_world import safetensors_body
from fakes.played_kubelet import Pod
from fakes.store_world import opened
from fakes.volume_world import PlayedPods
from modelcache_agent.inputs.records import Decided, Happening, read_records
from modelcache_cli.__main__ import app
from modelcache_simulator.live import predict

KIB = 1 << 10
MODELS = [f"m{number}" for number in range(6)]
POPULARITY = [3, 3, 2, 2, 1, 1]
ATTACHES, BATCH = 500, 20


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


def choose_two(script) -> list[str]:
    """Two models, the popular ones more often."""
    first = script.choices(MODELS, POPULARITY)[0]
    second = first
    while second == first:
        second = script.choices(MODELS, POPULARITY)[0]
    return [first, second]


@pytest.fixture
async def log(tmp_path, monkeypatch):
    """The input log of an agent on which pods of two models at a time came and went."""
    # Five hundred volumes' worth of waiting for the disk proves nothing here.
    monkeypatch.setattr(os, "fsync", lambda _file: None)
    monkeypatch.setattr("modelcache_agent.loop._COALESCE_SECONDS", 0.01)
    script = random.Random(7)
    with open_bench(tmp_path) as bench:
        bench.capacity = 3 * 300 * KIB
        for seed, uid in enumerate(MODELS):
            bench.offer(uid, {"model.safetensors": safetensors_body(256 * KIB, seed)})
        entries = [bench.entry(uid, evictable=True) for uid in MODELS]
        # Pods of a batch come and go at once, by renames: what is looked at half-way is no script.
        coming, gone = tmp_path / "coming", tmp_path / "gone"
        for folder in (coming, gone):
            folder.mkdir()
        with opened(coming):
            pass
        pods = PlayedPods(coming, tmp_path / "kubelet")
        async with bench.started("--disk-policy=value", "--input-log=64Mi"):
            bench.cluster.want(*entries, caches={f"search/{uid}": uid for uid in MODELS})
            settled = {("Cached", "Cached"), ("Evicted", "Evicted")}
            await bench.until(lambda: {bench.cluster.state(uid) for uid in MODELS} == settled)
            for first in range(0, ATTACHES, BATCH):
                chosen = choose_two(script)
                batch = [Pod(uid=f"pod-{first + n}", cache=chosen[n % 2]) for n in range(BATCH)]
                for pod in batch:
                    pods.add(pod)
                for pod in batch:
                    (coming / "pods" / pod.uid).rename(bench.root / "pods" / pod.uid)
                bench.cluster.nudge()
                volumes = [PlayedPods(bench.root, tmp_path).find(pod) for pod in batch]
                await bench.until(
                    lambda volumes=volumes: all(volume.is_ready for volume in volumes),
                    "all volumes of the batch",
                )
                for pod in batch:
                    (bench.root / "pods" / pod.uid).rename(gone / pod.uid)
        yield bench.root / "inputs" / "current.jsonl"


async def test_500_attaches_are_decided_alike_and_their_waits_predicted(log):
    lines = log.read_text().splitlines()
    records = list(read_records(lines))
    attaches = [r for r in records if isinstance(r, Happening) and r.kind == "attach"]
    assert len(attaches) == ATTACHES
    assert {one.size_bytes for one in attaches} != {None}
    decided = [r for r in records if isinstance(r, Decided)]
    assert len({one.plan_hash for one in decided}) > 10
    assert any(one.world.condemned for one in decided), "some had to give way"
    alike = f"{len(decided)} decisions, 500 attaches: all decided alike"
    assert alike in replay_elsewhere(log, hash_seed="1")
    told = CliRunner().invoke(app, ["simulate", "--live", str(log)])
    assert told.exit_code == 0, told.output
    assert alike in told.output
    assert "predicted from 500 arrivals alone" in told.output
    found = predict(records)
    assert found.measured_loads >= 15
    assert abs(found.error) <= 0.1, told.output
