"""`kubectl modelcache pin`: what it writes, and when it refuses to."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest
from typer.testing import CliRunner

from fakes.played_objects import PlayedKube, cache, quota
from modelcache_api.names import Priority, Retention
from modelcache_cli import change_commands
from modelcache_cli.__main__ import app
from modelcache_cli.errors import CliError
from modelcache_cli.pinning import PinWish, pin_cache
from modelcache_operator.decide.world import ObjectKey

KEY = ObjectKey("search", "m")
PIN = PinWish(Retention.PINNED)
GRANTED = quota(hard={"pinned": "4Gi"}, maxPriority="High")


def applied_by(manager, operation="Apply", field="retention"):
    fields = {"f:spec": {f"f:{field}": {}}}
    return {"managedFields": [{"manager": manager, "operation": operation, "fieldsV1": fields}]}


async def pin(wish=PIN, quotas=(GRANTED,), **fields):
    kube = PlayedKube(modelcaches=[cache(**fields)], modelcachequotas=quotas)
    return kube, await pin_cache(kube, KEY, wish)


async def test_it_writes_the_one_field_in_the_persons_name_guarded_by_the_uid():
    kube, done = await pin()
    body = {"metadata": {"uid": "mc-m"}, "spec": {"retention": "Pinned"}}
    options = {"field_manager": "kubectl-modelcache"}
    assert kube.patches == [("modelcaches", "search", "m", body, options)]
    assert done.found["spec"] == {"stable": {"modelVersion": "m1"}, "retention": "Pinned"}
    assert (done.plan.told, done.plan.notes) == (
        "modelcache search/m: retention Pinned, priority Normal; 2Gi are charged as pinned",
        (),
    )


async def test_priority_is_written_with_it():
    kube, _ = await pin(PinWish(Retention.PINNED, Priority.HIGH))
    assert kube.patches[0][3]["spec"] == {"retention": "Pinned", "priority": "High"}


async def test_off_asks_no_quota():
    kube, done = await pin(PinWish(Retention.CACHED), (), spec={"retention": "Pinned"})
    assert kube.patches[0][3]["spec"] == {"retention": "Cached"}
    assert done.plan.notes == ()


async def test_what_is_so_already_is_not_written():
    kube, done = await pin(spec={"retention": "Pinned"})
    assert kube.patches == []
    assert done.plan.told == "modelcache search/m is so already: retention Pinned, priority Normal"


@pytest.mark.parametrize(
    ("quotas", "wish", "said"),
    [
        pytest.param(
            [quota()], PIN, "retention Pinned is not granted by ModelCacheQuota q", id="0"
        ),
        pytest.param(
            [GRANTED, quota("strict", hard={"pinned": "1Gi"})],
            PinWish(Retention.PINNED, Priority.HIGH),
            "priority High is not granted",
            id="the strictest quota",
        ),
        pytest.param(
            [quota(hard={"pinned": "3Gi"}, status={"used": {"pinnedBytes": 2 << 30}})],
            PIN,
            r"its copies take 2Gi, and of the 3Gi that ModelCacheQuota q lets be pinned 2Gi are al",
            id="too many bytes",
        ),
    ],
)
async def test_what_the_quota_does_not_grant_is_refused_before_it_is_written(quotas, wish, said):
    kube = PlayedKube(modelcaches=[cache()], modelcachequotas=quotas)
    with pytest.raises(CliError, match=f"^QuotaExceeded: {said}.*, so nothing was changed: "):
        await pin_cache(kube, KEY, wish)
    assert kube.patches == []


@pytest.mark.parametrize(
    ("forbidden", "who"),
    [((), "there is no ModelCacheQuota"), (["modelcachequotas"], "you may not list")],
)
async def test_where_the_quota_is_not_known_that_is_said(forbidden, who):
    kube = PlayedKube(forbidden, modelcaches=[cache()])
    (note,) = (await pin_cache(kube, KEY, PIN)).plan.notes
    assert note.startswith(who)
    assert len(kube.patches) == 1


async def test_a_tool_that_would_set_it_back_is_named_and_force_goes_on():
    with pytest.raises(CliError, match=r"kustomize-controller applies spec\.retention of "):
        await pin(metadata=applied_by("kustomize-controller"))
    kube, _ = await pin(
        PinWish(Retention.PINNED, is_forced=True), metadata=applied_by("kustomize-controller")
    )
    assert len(kube.patches) == 1


@pytest.mark.parametrize(
    "metadata",
    [
        applied_by("kubectl-create", "Update"),
        applied_by("kustomize-controller", field="stable"),
        {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"spec": {}}'}},
        {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "no JSON"}},
    ],
)
async def test_who_does_not_state_the_field_leaves_it_alone(metadata):
    kube, done = await pin(metadata=metadata)
    assert (len(kube.patches), done.plan.notes) == (1, ())


async def test_a_kubectl_apply_that_states_it_is_a_note():
    text = json.dumps({"spec": {"retention": "Cached"}})
    metadata = {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": text}}
    _, done = await pin(metadata=metadata)
    assert done.plan.notes[0].startswith("what was applied with kubectl says spec.retention itself")


async def test_a_model_cache_that_does_not_exist_is_said_with_the_cure():
    with pytest.raises(CliError, match=r"no ModelCache 'm' in namespace 'search'; `kubectl get"):
        await pin_cache(PlayedKube(), KEY, PIN)


def test_the_command_prints_a_sentence_or_the_object(monkeypatch):
    kube = PlayedKube(modelcaches=[cache()], modelcachequotas=[GRANTED])

    @asynccontextmanager
    async def open_played(choice):
        yield kube, choice.namespace or "search"

    monkeypatch.setattr(change_commands, "open_cluster", open_played)
    said = CliRunner().invoke(app, ["pin", "m"])
    assert (said.exit_code, said.stdout[:18]) == (0, "modelcache search/")
    document = CliRunner().invoke(app, ["pin", "m", "-ojson"])
    assert json.loads(document.stdout)["spec"]["retention"] == "Pinned"
    absent = CliRunner().invoke(app, ["pin", "m", "-n", "other"])
    assert (absent.exit_code, absent.stderr[:6]) == (1, "error:")
