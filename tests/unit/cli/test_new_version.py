"""`kubectl modelcache new-version`: a copy that can be applied, and nothing that must not be."""

from __future__ import annotations

import pytest

from modelcache_api.v1alpha1.model_version import ModelVersion
from modelcache_cli.errors import CliError
from modelcache_cli.new_version import copy_version, fetch_new_version
from modelcache_operator.decide.world import ObjectKey

KEY = ObjectKey("search", "m1")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def found(uri="s3://models/m", labels=None, **spec):
    return {
        "apiVersion": "modelcache.io/v1alpha1",
        "kind": "ModelVersion",
        "metadata": {
            "name": "m1",
            "namespace": "search",
            "uid": "u1",
            "resourceVersion": "7",
            "generation": 2,
            "labels": labels or {},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {"model": "m", "source": {"uri": uri, "recheckInterval": "1h"}, **spec},
        "status": {"sourceDigest": "sha256:" + "a" * 64},
    }


class KubeWith:
    """Stands in for the client: these ModelVersions and no others."""

    def __init__(self, *names: str) -> None:
        self._names = names

    async def get(self, resource, name, namespace=None):
        return found() if name in self._names else None


def test_the_copy_is_new_and_asks_for_the_same():
    made = copy_version(found(include=["*.safetensors"], onSourceGone="Drop"), "m2")
    assert made.document == {
        "apiVersion": "modelcache.io/v1alpha1",
        "kind": "ModelVersion",
        "metadata": {"name": "m2", "namespace": "search"},
        "spec": found(include=["*.safetensors"], onSourceGone="Drop")["spec"],
    }
    assert made.notes == ()
    ModelVersion.model_validate(made.document)


def test_a_pin_stays_with_the_old_bytes_and_that_is_said():
    made = copy_version(found(digest="sha256:" + "a" * 64), "m2")
    assert "digest" not in made.document["spec"]
    assert "spec.digest was left out" in made.notes[0]


def test_a_commit_in_the_uri_is_pointed_out():
    assert "names a commit" in copy_version(found(f"hf://org/name@{COMMIT}"), "m2").notes[0]


def test_labels_of_tools_that_prune_are_left_out():
    labels = {
        "team": "search",
        "app.kubernetes.io/name": "ranker",
        "app.kubernetes.io/instance": "search-prod",
        "app.kubernetes.io/managed-by": "Helm",
        "argocd.argoproj.io/instance": "search-prod",
        "kustomize.toolkit.fluxcd.io/name": "search",
        "helm.sh/chart": "search-1",
    }
    kept = copy_version(found(labels=labels), "m2").document["metadata"]["labels"]
    assert kept == {"team": "search", "app.kubernetes.io/name": "ranker"}


async def test_what_can_be_copied_is():
    made = await fetch_new_version(KubeWith("m1"), KEY, "m2")
    assert made.document["metadata"]["name"] == "m2"


@pytest.mark.parametrize(
    ("there", "name", "message"),
    [
        pytest.param((), "m2", "no ModelVersion 'm1' in namespace 'search'", id="nothing there"),
        pytest.param(("m1", "m2"), "m2", "'m2' in namespace 'search' already", id="taken"),
        pytest.param(("m1",), "m1", "'m1' in namespace 'search' already", id="its own name"),
        pytest.param(("m1",), "M2", "lower-case letters", id="upper case"),
        pytest.param(("m1",), "m2\n", "lower-case letters", id="a line end"),
        pytest.param(("m1",), "m" * 64, "at most 63 characters", id="too long"),
    ],
)
async def test_what_cannot_is_refused_with_the_cure(there, name, message):
    with pytest.raises(CliError, match=message):
        await fetch_new_version(KubeWith(*there), KEY, name)
