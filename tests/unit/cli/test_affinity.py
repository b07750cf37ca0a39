"""`kubectl modelcache affinity`: what it prints, and what it says instead."""

from __future__ import annotations

import json

import pytest
import yaml
from typer.testing import CliRunner

from modelcache_api.labels import make_node_label_key
from modelcache_api.names import Tier, Track
from modelcache_cli.__main__ import app
from modelcache_cli.affinity import AffinityRequest, fetch_affinity
from modelcache_cli.errors import CliError
from modelcache_cli.output import Format, render
from modelcache_operator.desired.affinity import TIER_WEIGHTS, build_node_affinity

KEY = make_node_label_key("search", "minilm-v1", "sha256:" + "0" * 64)
CANARY_KEY = make_node_label_key("search", "minilm-v2", "sha256:" + "1" * 64)


class KubeWith:
    """Stands in for the client: one ModelCache or none."""

    def __init__(
        self, status: dict[str, object] | None, *, exists: bool = True, canary: bool = False
    ) -> None:
        spec = {"stable": {"modelVersion": "minilm-v1"}}
        tried = {"canary": {"modelVersion": "minilm-v2", "weight": 5}} if canary else {}
        self._object = {"spec": spec | tried, "status": status}
        self._exists = exists

    async def get(self, resource, name, namespace=None):
        return self._object if self._exists else None


def request(*, required: bool = False, track: Track = Track.STABLE) -> AffinityRequest:
    return AffinityRequest("search", "minilm", track, required)


async def test_preferred_affinity_names_the_label_with_its_tier() -> None:
    kube = KubeWith(
        {"tracks": [{"name": "stable", "modelVersion": "minilm-v1", "nodeLabelKey": KEY}]}
    )
    affinity = await fetch_affinity(kube, request())
    assert affinity == {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": weight,
                "preference": {
                    "matchExpressions": [{"key": KEY, "operator": "In", "values": [tier]}]
                },
            }
            for tier, weight in (("gpu", 100), ("host", 60), ("disk", 20))
        ]
    }


def test_every_tier_that_a_label_can_name_has_a_weight_and_a_faster_one_weighs_more() -> None:
    weights = [TIER_WEIGHTS[tier.lower()] for tier in Tier]
    assert weights == sorted(set(weights))


async def test_required_affinity_holds_a_term_for_each_key() -> None:
    affinity = build_node_affinity(["b", "a", "b"], required=True)
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [t["matchExpressions"][0]["key"] for t in terms] == ["a", "b"]


async def test_unknown_cache_is_named_with_the_cure() -> None:
    with pytest.raises(CliError, match=r"no ModelCache 'minilm' in namespace 'search'.*get model"):
        await fetch_affinity(KubeWith(None, exists=False), request())


async def test_unknown_content_says_why() -> None:
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "AuthFailed",
        "message": "the store refused the key",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    with pytest.raises(CliError, match="AuthFailed: the store refused the key"):
        await fetch_affinity(KubeWith({"conditions": [condition]}), request())


async def test_the_canarys_nodes_are_found_by_its_own_label() -> None:
    tracks = [
        {"name": "stable", "modelVersion": "minilm-v1", "nodeLabelKey": KEY},
        {"name": "canary", "modelVersion": "minilm-v2", "nodeLabelKey": CANARY_KEY},
    ]
    kube = KubeWith({"tracks": tracks}, canary=True)
    affinity = await fetch_affinity(kube, request(track=Track.CANARY, required=True))
    assert affinity == build_node_affinity([CANARY_KEY], required=True)


async def test_a_cache_without_canary_says_so() -> None:
    tracks = [{"name": "stable", "modelVersion": "minilm-v1", "nodeLabelKey": KEY}]
    with pytest.raises(CliError, match=r"search/minilm has no canary; name one in spec\.canary"):
        await fetch_affinity(KubeWith({"tracks": tracks}), request(track=Track.CANARY))


async def test_a_canary_of_unknown_content_says_why_by_its_own_condition() -> None:
    condition = {"status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [
        condition | {"type": "Ready", "reason": "Cached", "message": "all is well"},
        condition | {"type": "CanaryResident", "reason": "CanaryLoading", "message": "0 of 2"},
    ]
    with pytest.raises(CliError, match="CanaryLoading: 0 of 2"):
        await fetch_affinity(
            KubeWith({"conditions": conditions}, canary=True), request(track=Track.CANARY)
        )


@pytest.mark.parametrize("track", Track)
def test_the_command_knows_every_track(track, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    result = CliRunner().invoke(app, ["affinity", "minilm", "--track", track])
    assert "there is no kubeconfig at" in result.output


def test_yaml_and_json_say_the_same() -> None:
    document = build_node_affinity([KEY])
    assert yaml.safe_load(render(document, Format.YAML)) == document
    assert json.loads(render(document, Format.JSON)) == document


def test_missing_kubeconfig_is_one_line_without_traceback(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    result = CliRunner().invoke(app, ["affinity", "minilm"])
    assert result.exit_code == 1
    assert "there is no kubeconfig at" in result.output
    assert "Traceback" not in result.output
