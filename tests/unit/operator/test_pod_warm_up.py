"""What the kubelet says of a pod's warm-up, as the operator reads it."""

from __future__ import annotations

import pytest

from modelcache_operator.adapters.parsing import ObservedKind, parse_object

SIDECAR = [{"name": "modelcache-wait"}, {"name": "modelcache-warmup"}]
OVER = {"terminated": {"exitCode": 1, "message": "not warm within 600 s"}}


def parse(containers, *statuses):
    raw = {
        "metadata": {"name": "p", "namespace": "search", "uid": "u", "resourceVersion": "1"},
        "spec": {"containers": [], "initContainers": containers},
        "status": {"initContainerStatuses": list(statuses)},
    }
    view = parse_object(ObservedKind.PODS, raw).view
    return view.is_cold, view.warm_up_failure


def said(**fields):
    return {"name": "modelcache-warmup", **fields}


@pytest.mark.parametrize(
    ("containers", "statuses", "expected"),
    [
        pytest.param(None, (), (False, None), id="no init containers"),
        pytest.param(SIDECAR[:1], (), (False, None), id="no warm-up"),
        pytest.param(SIDECAR, (), (True, None), id="the kubelet has not begun"),
        pytest.param(SIDECAR, (said(ready=False, state={"running": {}}),), (True, None), id="runs"),
        pytest.param(SIDECAR, (said(ready=True, lastState=OVER),), (False, None), id="warm"),
        pytest.param(
            SIDECAR, (said(state=OVER),), (True, "not warm within 600 s"), id="it has failed"
        ),
        pytest.param(
            SIDECAR,
            (said(state={"waiting": {}}, lastState=OVER),),
            (True, "not warm within 600 s"),
            id="it has failed and is tried again",
        ),
        pytest.param(
            SIDECAR,
            (said(state={"terminated": {"exitCode": 137}}),),
            (True, "exit code 137"),
            id="it was killed",
        ),
    ],
)
def test_a_pod_is_cold_until_its_warm_up_is_ready(containers, statuses, expected):
    assert parse(containers, *statuses) == expected


@pytest.mark.parametrize("ends", [None, "2026-01-31T12:00:00Z"])
def test_a_pod_that_is_being_deleted_is_known(ends):
    metadata = {"name": "p", "namespace": "search", "uid": "u", "resourceVersion": "1"}
    raw = {"metadata": {**metadata, "deletionTimestamp": ends}, "spec": {}, "status": {}}
    assert parse_object(ObservedKind.PODS, raw).view.is_terminating is (ends is not None)
