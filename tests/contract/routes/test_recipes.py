"""What docs/rollouts.md shows: manifests that parse, and our part of the recipes as it runs."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from contract.crds.objects import CONDITION
from modelcache_api.names import Condition
from modelcache_kube import MODEL_CACHES
from modelcache_operator.adapters.parsing import ObservedKind, parse_object
from modelcache_operator.adapters.routes import parse_route
from modelcache_operator.decide.route import decide_route, find_wish
from modelcache_testbed.programs import kubectl

PAGE = Path(__file__).parents[3] / "docs" / "rollouts.md"
CRDS = Path(__file__).parents[3] / "crds"
ACCOUNT = "wait-for-model"


def manifests(*kinds: str) -> list[dict]:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found = [one for block in blocks for one in yaml.safe_load_all(block)]
    assert all(one["apiVersion"] and one["metadata"]["name"] for one in found)
    return [one for one in found if not kinds or one["kind"] in kinds]


def job_specs() -> dict[str, dict]:
    """The Job of each recipe, by the kind that holds it."""
    (template,) = manifests("AnalysisTemplate")
    (job,) = manifests("Job")
    measured = template["spec"]["metrics"][0]["provider"]["job"]
    return {"AnalysisTemplate": measured["spec"], "Job": job["spec"]}


def waiting_command(spec: dict) -> list[str]:
    pod = spec["template"]["spec"]
    (container,) = [
        one for one in (*pod.get("initContainers", ()), *pod["containers"]) if one["name"] == "wait"
    ]
    return container["command"]


def test_the_route_of_the_page_fits_the_model_cache_of_the_page():
    (raw,) = manifests("HTTPRoute")
    raw["metadata"]["uid"] = "r1"
    cache = next(one for one in manifests("ModelCache") if "httpRouteRef" in str(one))
    cache["metadata"] |= {"uid": "c1", "generation": 1, "resourceVersion": "1"}
    cache["status"] = {"observedGeneration": 1, "traffic": {"stable": 75, "canary": 25}}
    wish = find_wish(parse_object(ObservedKind.MODEL_CACHES, cache).view)
    plan = decide_route(parse_route(raw), wish)
    assert plan.verdict.is_routed
    assert [change.weight for change in plan.changes] == [75, 25]


def test_both_recipes_wait_for_the_same_condition_under_the_same_account():
    for spec in job_specs().values():
        assert spec["template"]["spec"]["serviceAccountName"] == ACCOUNT
        command = waiting_command(spec)
        assert command[:2] == ["kubectl", "wait"]
        assert f"--for=condition={Condition.CANARY_RESIDENT}" in command


@pytest.mark.cluster
async def test_the_recipes_account_may_wait_and_its_command_ends_with_the_condition(
    cluster, kube, tmp_path
):
    for file in sorted(CRDS.glob("modelcache.io_*.yaml")):
        cluster.apply(file)
    cluster.create_namespace("search")
    try:
        cluster.apply(manifests("ServiceAccount", "Role", "RoleBinding"))
        for cache in manifests("ModelCache"):
            applied = await kube.apply(MODEL_CACHES, cache, field_manager="a-user")
        for kind, spec in job_specs().items():
            job = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": kind.lower(), "namespace": "search"},
                "spec": spec,
            }
            checked = cluster.kubectl(
                *("create", "--dry-run=server", "--validate=strict", "-f", "-"),
                stdin=yaml.safe_dump(job),
            )
            assert "created" in checked
        account = cluster.service_account_kubeconfig("search", ACCOUNT, tmp_path / "account")
        command = waiting_command(job_specs()["Job"])[1:]
        waiting = await asyncio.create_subprocess_exec(
            *(str(kubectl()), f"--kubeconfig={account.kubeconfig}", *command),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting.wait()), 2)
        condition = {
            **CONDITION,
            "type": "CanaryResident",
            "reason": "CanaryResident",
            "observedGeneration": applied["metadata"]["generation"],
        }
        await kube.merge_patch(
            *(MODEL_CACHES, "minilm", {"status": {"conditions": [condition]}}),
            namespace="search",
            subresource="status",
        )
        told, _ = await asyncio.wait_for(waiting.communicate(), 30)
        assert (waiting.returncode, b"condition met" in told) == (0, True), told
    finally:
        cluster.delete_namespace("search")
