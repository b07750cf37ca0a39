"""`make soak`: hours of churn; memory and descriptors of operator and agents stay what they were.

Real agents as processes on a few nodes with real bytes, stand-ins without bytes on many more. By a
seed ModelCaches and versions are made, changed and deleted, and agents of stand-ins fall silent and
come back. The operator and the real agents run through; what they take is read once a minute, and
that the operator works. In the end all that is wanted by then must be there.
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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from figure import scaled
from fleet_scene import count_descriptors, fetch_metrics, read_status
from local_system import local_system

from fakes.played_fleet import PlayedFleet
from fakes.world import API, World
from modelcache_kube import MODEL_CACHES, MODEL_VERSIONS, ConnectConfig, connect
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
# After the churn, until all that is wanted is there.
END_SECONDS = 300.0
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


def judge_work(before: Mapping[str, float], found: Mapping[str, float]) -> str | None:
    """Why the operator does not work, or None: its metrics after a while of churn.

    One that hangs takes no more memory than before.
    """
    if not found:
        return "the operator does not answer"
    if found.get("modelcache_operator_is_leader") != 1:
        return "the operator does not lead"
    if bugs := _count(found, "bug"):
        return f"the operator has met a bug {bugs:.0f} times: see its log"
    if _count(found, "success") <= _count(before, "success"):
        return "the operator has looked at nothing"
    return None


def _count(metrics: Mapping[str, float], result: str) -> float:
    return sum(
        value
        for name, value in metrics.items()
        if name.startswith("modelcache_operator_reconciles_total") and f'result="{result}"' in name
    )


def find_incomplete(caches: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of those ModelCaches that are not Ready with as many copies as they want."""
    return [
        one["metadata"]["name"]
        for one in caches
        if not is_ready(one)
        or one["status"].get("observedGeneration") != one["metadata"]["generation"]
        or one["status"].get("copiesSummary")
        != "{0}/{0}".format(one["spec"]["placement"]["copies"])
    ]


def is_ready(item: Mapping[str, Any]) -> bool:
    """True if its condition Ready is."""
    conditions = item.get("status", {}).get("conditions", ())
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


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

    async def end(self) -> None:
        """Nobody is silent any more, and all that is wanted comes to be."""
        while self.silent:
            await self._revive()
        deadline = time.monotonic() + END_SECONDS
        while missing := await self._find_missing():
            if time.monotonic() > deadline:
                raise SystemExit(f"after the churn there is still lacking: {missing[:5]}")
            await asyncio.sleep(2)

    async def _find_missing(self) -> list[str]:
        kube = self.fleet.kube
        versions = (await kube.list(MODEL_VERSIONS, self.team)).items
        caches = (await kube.list(MODEL_CACHES, self.team)).items
        names = {one["metadata"]["name"] for one in caches}
        unready = [one["metadata"]["name"] for one in versions if not is_ready(one)]
        return [*find_incomplete(caches), *unready, *sorted(names ^ self.caches.keys())]

    async def _silence(self) -> None:
        """At most a tenth of the stand-ins are silent at once."""
        living = sorted(name for name, node in self.fleet.nodes.items() if node.is_alive)
        if len(self.silent) < max(1, PLAYED // 10):
            self.silent.append(self.chance.choice(living))
            self.fleet.kill(self.silent[-1])

    async def _revive(self) -> None:
        if self.silent:
            await self.fleet.revive(self.silent.pop(0))


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
        told_before = await _ask_operator(world.system)
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
                told_now = await _ask_operator(world.system)
                if complaint := judge_work(told_before, told_now):
                    raise SystemExit(f"{complaint}\n{_end_of_log(world.system)}")
                told_before, sampled = told_now, now
        await churn.end()
        told = ", ".join(f"{count} {what}" for what, count in sorted(done.items()))
        print(f"{told}; {len(fleet.downloads)} copies were begun by stand-ins", flush=True)
    _take_samples(programs, taken)
    if ended := [name for name, one in programs.items() if one.identity != born[name]]:
        raise SystemExit(f"ended by themselves: {', '.join(ended)}")
    return taken


async def _ask_operator(system: System) -> dict[str, float]:
    return await asyncio.to_thread(fetch_metrics, system.operator_http_port)


def _end_of_log(system: System) -> str:
    """What the operator said last: its folder goes with the run."""
    return "\n".join(line for one in system.operators.values() for line in one.last_lines(40))


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
