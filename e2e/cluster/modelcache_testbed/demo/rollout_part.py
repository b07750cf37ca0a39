"""A rollout: v2 beside v1, a share of the keys, back at once, and over for good."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modelcache_api.quantities import format_bytes
from modelcache_testbed.demo.scene import CACHE, TEAM, V1, V2, Scene
from modelcache_testbed.demo.steps import check, show, start_step
from modelcache_testbed.demo.talk import Program
from modelcache_testbed.demo.vectors import distance
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.waiting import wait_until

KEYS = 20_000
_SAME = {V1: 1e-5, V2: 1e-2}
_POD = "router"
# Four standard deviations: less than one in ten thousand splits lies outside by chance.
_DEVIATIONS = 4
_INTERVAL, _LONG_HOLD, _SHORT_HOLD = "10s", "10m", "10s"


@dataclass(frozen=True)
class Split:
    """How the client answered all keys, and how many changed their version since last time."""

    weights: Mapping[str, int]
    v1: int
    v2: int
    to_v1: int
    to_v2: int


class RolloutPart:
    """`references` are what the versions are to answer."""

    def __init__(self, scene: Scene, references: Mapping[str, Sequence[float]]) -> None:
        """Refer to the scene."""
        self._scene = scene
        self._references = references

    def show(self) -> None:
        """Up, back and over."""
        warm = self._scene.warm_nodes()
        self._begin(warm)
        with self._client() as client:
            self._split(client, 5)
            self._raise(client, 25)
            self._roll_back(client, warm)
            self._promote(client, warm)
        self._end_hold(warm)

    def _begin(self, warm: set[str]) -> None:
        start_step(
            "Rollout: v2 (MiniLM cast to bfloat16) as canary at 5 %. Traffic moves when both nodes "
            "hold both."
        )
        before = self._scene.bytes_read()
        self._scene.cluster.apply([self._scene.build_version(V2)])
        rollout = {"interval": _INTERVAL, "holdFor": _LONG_HOLD}
        self._scene.change_cache(canary={"modelVersion": V2, "weight": 5}, rollout=rollout)
        self._await_weight(5)
        table = self._scene.cluster.kubectl("get", "modelcaches", "--namespace", TEAM)
        show(table)
        row = table.splitlines()[1].split()
        check(row[1:5] == [V1, V2, "95/5", "2/2"], "kubectl says 95/5 and two copies")
        resident = self._scene.condition("CanaryResident")
        check(resident.get("status") == "True", f"CanaryResident: {resident.get('message')}")
        for version in (V1, V2):
            check(
                self._scene.warm_nodes(version) == warm,
                f"{version}: verified and labelled on {' and '.join(sorted(warm))}",
            )
        sent, fetched = self._count_since(before)
        check(
            0 < sent < fetched,
            f"the store has sent {format_bytes(sent)} for it, the agents have fetched "
            f"{format_bytes(fetched)}: half of it from each other",
        )

    @contextlib.contextmanager
    def _client(self) -> Iterator[Program]:
        """A process in a pod on a warm node, with the client library."""
        (pod,) = self._scene.add_pods(_POD)
        volumes = self._scene.volumes(pod["spec"]["nodeName"])
        root = volumes.publish(pod, CACHE)
        log = self._scene.system.folder / "client.log"
        try:
            with Program("client", root, CACHE, KEYS, log=log) as client:
                yield client.ready()
        finally:
            volumes.unpublish(pod)
            self._scene.remove_pods(_POD)

    def _split(self, client: Program, weight: int) -> Split:
        start_step(
            f"A client process holds both versions; `choose(key)` says which one answers: {KEYS:,} "
            "keys."
        )
        return self._check_split(client, weight)

    def _raise(self, client: Program, weight: int) -> None:
        start_step(f"{weight} %: more keys go to v2, and none comes back from it.")
        self._scene.change_cache(canary={"weight": weight})
        self._await_weight(weight)
        split = self._check_split(client, weight)
        check(split.to_v1 == 0, f"{split.to_v2:,} keys went to v2, {split.to_v1} came back")

    def _roll_back(self, client: Program, warm: set[str]) -> None:
        start_step(
            "Rollback: the canary leaves the spec. Every key is v1's again, nothing is read."
        )
        before, began = self._scene.bytes_read(), time.monotonic()
        self._scene.change_cache(canary=None)
        split = self._await_split(client, {"stable": 100}, v2=0)
        seconds = time.monotonic() - began
        check(
            split.v1 == KEYS,
            f"all {KEYS:,} keys are answered by v1 again, {seconds:.1f} s after the change",
        )
        wait_until(lambda: bool(self._scene.status().get("held")), seconds=30, what="the held v2")
        (held,) = self._scene.status()["held"]
        check(
            held["modelVersion"] == V2 and held["copies"] == len(warm),
            f"v2 is held on {held['copies']} nodes until {held['until']}",
        )
        self._check_nothing_read(before)

    def _promote(self, client: Program, warm: set[str]) -> None:
        start_step(
            "Promotion: v2 becomes stable, in one change. It was held, so nothing is read; v1 is "
            "held now."
        )
        before = self._scene.bytes_read()
        self._scene.change_cache(stable={"modelVersion": V2}, rollout={"holdFor": _SHORT_HOLD})
        wait_until(
            lambda: self._scene.warm_nodes(V2) == warm and not self._scene.warm_nodes(V1),
            seconds=60,
            what="the labels of v2, and none of v1",
        )
        wait_until(
            lambda: self._scene.status().get("copiesSummary") == "2/2",
            seconds=30,
            what="two copies of v2",
        )
        show(self._scene.cluster.kubectl("get", "modelcaches", "--namespace", TEAM))
        split = self._await_split(client, {"stable": 100}, v2=KEYS)
        check(split.v2 == KEYS, f"the same process answers all {KEYS:,} keys by v2")
        self._check_nothing_read(before)
        held = {row["modelVersion"] for row in self._scene.status().get("held", ())}
        check(held == {V1}, f"held: {', '.join(sorted(held))}")

    def _end_hold(self, warm: set[str]) -> None:
        start_step(f"The hold ends ({_SHORT_HOLD} here, 1h by default): v1 leaves the disks.")
        wait_until(
            lambda: all(len(self._scene.trees(node)) == 1 for node in warm),
            seconds=90,
            what="the end of v1's hold",
        )
        for node in sorted(warm):
            check(len(self._scene.trees(node)) == 1, f"{node} holds v2 alone")

    # --- the split --------------------------------------------------------------------------

    def _check_split(self, client: Program, weight: int) -> Split:
        split = self._await_split(client, {"stable": 100 - weight, "canary": weight})
        share = weight / 100
        wanted = KEYS * share
        margin = _DEVIATIONS * math.sqrt(KEYS * share * (1 - share))
        check(
            split.v1 + split.v2 == KEYS and abs(split.v2 - wanted) <= margin,
            f"v1 answered {split.v1:,} keys, v2 {split.v2:,} ({wanted:,.0f} ± {margin:.0f})",
        )
        return split

    def _await_split(
        self, client: Program, weights: Mapping[str, int], *, v2: int | None = None
    ) -> Split:
        """Ask until the client knows the weights, and until v2 has that many keys."""
        found: list[Split] = []

        def is_there() -> bool:
            found[:] = [self._read_split(client.ask())]
            return found[0].weights == weights and v2 in {None, found[0].v2}

        wait_until(is_there, seconds=30, what=f"the weights {dict(weights)} in the client")
        return found[0]

    def _read_split(self, told: Mapping[str, Any]) -> Split:
        """Whose answers they are is found out by comparing them with the references."""
        counts = dict.fromkeys((V1, V2), 0)
        if told["misses"]:
            raise TestbedError(f"{told['misses']} keys were answered by the other version")
        for vector, number in told["answers"]:
            version = min(counts, key=lambda name: distance(vector, self._references[name]))
            off = distance(vector, self._references[version])
            if off >= _SAME[version]:
                raise TestbedError(f"an answer is neither version's: it is {off:g} off {version}'s")
            counts[version] += number
        moved = {(old, new): number for old, new, number in told["moved"]}
        return Split(
            told["weights"], counts[V1], counts[V2], moved.get((V2, V1), 0), moved.get((V1, V2), 0)
        )

    # --- the control plane -------------------------------------------------------------------

    def _await_weight(self, weight: int) -> None:
        def is_there() -> bool:
            return bool(self._scene.status().get("traffic", {}).get("canary") == weight)

        wait_until(is_there, seconds=90, what=f"a weight of {weight} in status.traffic")

    def _check_nothing_read(self, before: tuple[int, int]) -> None:
        sent, fetched = self._count_since(before)
        check(
            sent == 0 and fetched == 0,
            f"the store has sent {sent} bytes, the agents have fetched {fetched}",
        )

    def _count_since(self, before: tuple[int, int]) -> tuple[int, int]:
        """Bytes that the store has sent since then, and that the agents have fetched."""
        sent, fetched = self._scene.bytes_read()
        return sent - before[0], fetched - before[1]
