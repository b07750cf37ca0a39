"""The soak's verdict, and that the fleet's questions count what they should."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from fleet_scene import PREFIX, LabelWatch, read_cpu_seconds, verified_labels
from soak import Sample, find_incomplete, judge, judge_work

from fakes.played_fleet import PlayedFleet, PlayedNode
from modelcache_kube import NODES


def run_of(*mib: float, descriptors: int = 40) -> list[Sample]:
    return [Sample(one, descriptors) for one in mib for _ in range(10)]


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(run_of(100, 150, 150, 155), id="it fills its buffers at first"),
        pytest.param(run_of(150, 149, 170, 151), id="a peak in the middle"),
        pytest.param([Sample(100.0, 40)], id="a run that was too short to say"),
    ],
)
def test_what_stays_as_it_was_is_no_complaint(samples):
    assert judge("operator-0", samples) is None


def test_a_leak_is_told_with_its_size():
    assert judge("operator-0", run_of(100, 120, 150, 180)) == "operator-0 grew from 120 to 180 MiB"


def test_descriptors_that_are_left_open_are_told():
    samples = [Sample(100.0, 40 + number) for number in range(40)]
    assert "descriptors" in (judge("agent", samples) or "")


def test_a_label_that_goes_and_comes_back_is_a_flap_and_one_that_moves_is_none():
    watch = LabelWatch()
    for node, keys in (("n1", ["a"]), ("n2", []), ("n1", []), ("n2", ["a"])):
        watch.note(node, [PREFIX + key for key in keys])
    assert watch.flaps == 0
    watch.note("n1", [PREFIX + "a", "pool"])
    assert watch.flaps == 1
    watch.note("n1", ["pool"])
    watch.forgive()
    watch.note("n1", [PREFIX + "a"])
    assert watch.flaps == 1


def test_a_label_that_is_taken_off_though_its_agent_vouches_for_it_is_one_flap():
    watch = LabelWatch({"n1": frozenset({PREFIX + "a"})}.get)
    for keys in (["a"], [], ["a"]):
        watch.note("n1", [PREFIX + key for key in keys])
    assert watch.flaps == 1


def test_what_is_forgiven_on_some_nodes_counts_on_others():
    watch = LabelWatch()
    for node in ("n1", "n2"):
        watch.note(node, [PREFIX + "a"])
        watch.note(node, [])
    watch.forgive(["n1"])
    for node in ("n1", "n2"):
        watch.note(node, [PREFIX + "a"])
    assert watch.flaps == 1


def test_labels_are_true_of_verified_entries_alone():
    entries = [{"uid": "a", "labelKey": "x/a"}, {"uid": "b", "labelKey": "x/b"}, {"uid": "c"}]
    states = [{"uid": uid, "state": state} for uid, state in (("a", "Cached"), ("b", "Verifying"))]
    node = {
        "spec": {"entries": entries},
        "status": {"entries": [*states, {**states[0], "uid": "c"}]},
    }
    assert verified_labels(node) == {"x/a"}
    assert verified_labels({"spec": {}}) == frozenset()


def metrics(successes, *, leads=1.0, bugs=0.0):
    kinds = {"success": successes, "bug": bugs}
    return {
        "modelcache_operator_is_leader": leads,
        **{
            f'modelcache_operator_reconciles_total{{kind="node",result="{result}"}}': count
            for result, count in kinds.items()
        },
    }


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        pytest.param(metrics(11), None, id="it works"),
        pytest.param(metrics(10), "has looked at nothing", id="its workers hang"),
        pytest.param(metrics(11, leads=0.0), "does not lead", id="it has lost its Lease"),
        pytest.param(metrics(11, bugs=1.0), "bug", id="it stumbles"),
        pytest.param({}, "does not answer", id="it is deaf"),
    ],
)
def test_an_operator_that_does_nothing_does_not_pass_for_one_that_leaks_nothing(found, complaint):
    told = judge_work(metrics(10), found)
    assert (told is None) if complaint is None else (complaint in (told or ""))


def test_a_soak_ends_only_when_all_that_is_wanted_is_there():
    def cache(name, summary, generation=1, ready="True"):
        return {
            "metadata": {"name": name, "generation": generation},
            "spec": {"placement": {"copies": 2}},
            "status": {
                "copiesSummary": summary,
                "observedGeneration": 1,
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }

    lacking = [cache("a", "2/2"), cache("b", "1/2"), cache("c", "2/2", 2), cache("d", "3/3")]
    assert find_incomplete([*lacking, cache("e", "2/2", ready="False")]) == ["b", "c", "d", "e"]


class Objects:
    """One Node and its CacheNode, in place of an API server."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.applied = 0

    def node(self):
        return {"metadata": {"name": "n1", "labels": dict(self.labels)}}

    async def get(self, _resource, _name):
        return self.node()

    async def list(self, _resource):
        return SimpleNamespace(items=[self.node()])

    async def apply(self, resource, item, **_options):
        if resource is NODES:
            self.applied += 1
            self.labels = item["metadata"]["labels"]


async def test_a_stand_in_puts_back_what_somebody_took_off_its_node():
    """One that trusted its memory would hide that the operator wrongly took a label off."""
    objects = Objects()
    fleet = PlayedFleet(objects)
    node = fleet.nodes["n1"] = PlayedNode("n1", "uid-n1", record="uid-cn")
    node.spec = {"entries": [{"uid": "v1", "contentDigest": "d", "labelKey": PREFIX + "a"}]}
    await fleet._act(node)
    assert node.vouched == objects.labels.keys() == {PREFIX + "a"}
    await fleet._look_at_labels()
    await fleet._act(node)
    assert objects.applied == 1
    objects.labels = {}
    await fleet._look_at_labels()
    await fleet._act(node)
    assert objects.labels.keys() == {PREFIX + "a"}


def test_what_a_process_takes_of_the_cores_is_read_as_it_knows_it_itself():
    own = sum(os.times()[:2])
    assert own - 0.1 <= read_cpu_seconds(os.getpid()) <= sum(os.times()[:2]) + 0.1
    assert read_cpu_seconds(2**30) == 0
