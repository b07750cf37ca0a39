"""What is no JSON: logs of pods, and what the API server says of itself."""

from __future__ import annotations

import json
from datetime import UTC, timedelta

import pytest

from modelcache_kube import Invalid, NotFound
from modelcache_kube.timestamps import utc_now

pytestmark = pytest.mark.cluster
LIMITS = {"tail_lines": 10, "limit_bytes": 1000}


async def test_a_container_that_a_pod_does_not_have_is_refused_by_name(cluster, kube, room, name):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": room},
        "spec": {
            "containers": [{"name": "main", "image": "none"}],
            "schedulingGates": [{"name": "example.com/never"}],
        },
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    with pytest.raises(Invalid, match="other"):
        await kube.read_log(name, room, container="other", **LIMITS)


async def test_a_pod_that_is_not_there_has_no_log(kube, room, name):
    with pytest.raises(NotFound, match=name):
        await kube.read_log(name, room, container="main", **LIMITS)


async def test_the_api_server_tells_its_version(kube):
    assert (await kube.read_version())["gitVersion"].startswith("v1.")


async def test_the_api_server_tells_its_time(kube):
    told = await kube.read_time()
    assert (told.tzinfo, told.microsecond) == (UTC, 0)
    assert abs(utc_now() - told) < timedelta(seconds=10)
