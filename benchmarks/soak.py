"""`make soak`: hours of churn; memory and descriptors of operator and agents stay what they were.

Real agents as processes on a few nodes with real bytes, stand-ins without bytes on many more. By a
seed ModelCaches and versions are made, changed and deleted, and agents of stand-ins fall silent and
come back. The operator and the real agents run through; what they take is read once a minute.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from figure import scaled
from fleet_scene import count_descriptors, read_status
from local_system import local_system

from fakes.played_fleet import PlayedFleet
from fakes.world import API, World
from modelcache_kube import ConnectConfig, connect
from modelcache_testbed.system import (
    AGENT_ACCOUNT,
    NAMESPACE,
    OPERATOR_ACCOUNT,
    Program,
    System,
)

MINUTES = float(os.environ.get("SOAK_MINUTES", "120"))
SEED = int(os.environ.get("SOAK_SEED", "9"))
REAL, PLAYED, MOST = 3, scaled(200, 10), scaled(60, 6)
MODEL_BYTES, MODELS = 4_000_000, 6
ACTION_SECONDS, SAMPLE_SECONDS = 1.0, 60.0
# Tokens last an hour; a kubelet mints new ones in time.
TOKENS_SECONDS = 1200.0
# The first part fills caches, pools and buffers; it is not compared.
WARM_UP = 0.25
# What stand-ins say of a content is not what real bytes are: no version is on both.
_BYTES, _PLAYED = "bytes", "played"
_KINDS = (_BYTES, _PLAYED, _PLAYED)
GROWTH, SLACK_MIB, SLACK_DESCRIPTORS = 1.1, 16.0, 8


@dataclass(frozen=True)
class Sample:
    """What one process took at one moment."""

    mib: float
    descriptors: int


def judge(name: str, samples: Sequence[Sample]) -> str | None:
    """Why a process does not stay what it was, or None: the last part against an early one."""
    settled = samples[int(len(samples) * WARM_UP) :]
    part = max(1, len(settled) // 4)
    early, late = settled[:part], settled[-part:]
    before, after = _median_mib(early), _median_mib(late)
    if after > before * GROWTH + SLACK_MIB:
        return f"{name} grew from {before:.0f} to {after:.0f} MiB"
    opened = [statistics.median(one.descriptors for one in part) for part in (early, late)]
    if opened[1] > opened[0] + SLACK_DESCRIPTORS:
        return f"{name} had {opened[0]:.0f} descriptors open, and then {opened[1]:.0f}"
    return None


def _median_mib(samples: Sequence[Sample]) -> float:
    return statistics.median(one.mib for one in samples)


@dataclass
class Churn:
    """What users and nodes do, by a seed. The same seed does the same in the same order."""

    world: World
    team: str
    fleet: PlayedFleet
    chance: random.Random
    caches: dict[str, str] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def act(self) -> str:
        """One thing; what it was."""
        acts = (self._make, self._make, self._change, self._delete, self._silence, self._revive)
        act = self.chance.choice(acts)
        await act()
        return act.__name__.strip("_")

    async def _make(self) -> None:
        if len(self.caches) >= MOST:
            return await self._delete()
        name = f"s{next(self.numbers)}"
        prefix = f"model-{self.chance.randrange(MODELS)}"
        await asyncio.to_thread(self.world.apply_version, self.team, name, prefix)
        self.caches[name] = self.chance.choice(_KINDS)
        await self._place(name)
        return None

    async def _place(self, name: str) -> None:
        kind = self.caches[name]
        placement = {
            "copies": self.chance.randint(1, REAL if kind == _BYTES else 8),
            "nodeSelector": {"kind": kind},
        }
        await asyncio.to_thread(self.world.apply_cache, self.team, name, name, **placement)

    async def _change(self) -> None:
        if self.caches:
            await self._place(self.chance.choice(list(self.caches)))

    async def _delete(self) -> None:
        if self.caches:
            name = self.chance.choice(list(self.caches))
            del self.caches[name]
            for kind in ("modelcaches", "modelversions"):
                path = f"{API}/namespaces/{self.team}/{kind}/{name}"
                await asyncio.to_thread(self.world.cluster.api.delete, path)

    async def _silence(self) -> None:
        """At most a tenth of the stand-ins are silent at once."""
        living = sorted(name for name, node in self.fleet.nodes.items() if node.is_alive)
        if len(self.silent) < max(1, PLAYED // 10):
            self.silent.append(self.chance.choice(living))
            self.fleet.kill(self.silent[-1])

    async def _revive(self) -> None:
        if self.silent:
            name = self.silent.pop(0)
            self.fleet.nodes[name].labels = set()
            await self.fleet.revive(name)


def main() -> int:
    """The whole soak; 1 if a process grew."""
    with local_system() as (cluster, store, system):
        system.add_operator(extra=("--agent-lost-after=60s",))
        world = World(cluster, store, system, "soak")
        for number in range(REAL):
            world.add_node(f"r{number}", labels={"kind": _BYTES})
        names = [f"soak-p{number:03}" for number in range(PLAYED)]
        for name in names:
            cluster.add_node(name, labels={"kind": _PLAYED}, wait=False)
        for number in range(MODELS):
            world.put_model(f"model-{number}", size_bytes=MODEL_BYTES, seed=number)
        taken = asyncio.run(_soak(world, world.add_namespace("team"), names))
    complaints = [found for name, samples in taken.items() if (found := judge(name, samples))]
    for name, samples in taken.items():
        first, last = samples[int(len(samples) * WARM_UP)], samples[-1]
        print(
            f"{name}: {first.mib:.0f} -> {last.mib:.0f} MiB, "
            f"{first.descriptors} -> {last.descriptors} descriptors"
        )
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


async def _soak(world: World, team: str, names: list[str]) -> dict[str, list[Sample]]:
    config = ConnectConfig(kubeconfig=world.cluster.kubeconfig, user_agent="soak")
    programs = {**world.system.operators, **world.system.agents}
    born = {name: program.identity for name, program in programs.items()}
    taken: dict[str, list[Sample]] = {name: [] for name in programs}
    print(f"{MINUTES:.0f} minutes with seed {SEED}", flush=True)
    async with connect(config) as kube, PlayedFleet(kube, renew_seconds=15) as fleet:
        await fleet.add(*names)
        churn = Churn(world, team, fleet, random.Random(SEED))
        end = time.monotonic() + MINUTES * 60
        sampled = minted = time.monotonic()
        done: Counter[str] = Counter()
        while time.monotonic() < end:
            done[await churn.act()] += 1
            await asyncio.sleep(ACTION_SECONDS)
            now = time.monotonic()
            if now - minted > TOKENS_SECONDS:
                await asyncio.to_thread(_mint_tokens, world.system)
                minted = now
            if now - sampled > min(SAMPLE_SECONDS, MINUTES * 60 / 20):
                fleet.assert_alive()
                _take_samples(programs, taken)
                sampled = now
        told = ", ".join(f"{count} {what}" for what, count in sorted(done.items()))
        print(f"{told}; {len(fleet.downloads)} copies were begun by stand-ins", flush=True)
    _take_samples(programs, taken)
    if ended := [name for name, one in programs.items() if one.identity != born[name]]:
        raise SystemExit(f"ended by themselves: {', '.join(ended)}")
    return taken


def _take_samples(programs: dict[str, Program], taken: dict[str, list[Sample]]) -> None:
    for name, program in programs.items():
        sample = Sample(read_status(program, "VmRSS"), count_descriptors(program))
        taken[name].append(sample)
    told = ", ".join(f"{name} {rows[-1].mib:.0f} MiB" for name, rows in taken.items())
    print(f"  {told}", flush=True)


def _mint_tokens(system: System) -> None:
    """As kubelets do."""
    for name in system.operators:
        system.cluster.service_account_kubeconfig(NAMESPACE, OPERATOR_ACCOUNT, system.folder / name)
    for node in system.agents:
        system.cluster.agent_credentials(
            node, NAMESPACE, AGENT_ACCOUNT, system.folder / f"agent-{node}"
        )


if __name__ == "__main__":
    sys.exit(main())
