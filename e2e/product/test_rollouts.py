"""A pod's first and last moments during a rollout, by a real kubelet: warm-up and drain."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from modelcache_testbed import wait_until
from modelcache_testbed.images.build import reference_of
from modelcache_testbed.kube_api import find_condition
from modelcache_testbed.models import build_cache, build_version, make_model
from modelcache_testbed.product import TEAM, build_container, build_pod
from modelcache_testbed.product_store import ENDPOINT, reached_bucket
from modelcache_testbed.programs import kubectl

pytestmark = pytest.mark.nodes

NAME = "rolled"
VERSIONS = (f"{NAME}-v1", f"{NAME}-v2")
PODS = f"/api/v1/namespaces/{TEAM}/pods"
CACHE = f"/apis/modelcache.io/v1alpha1/namespaces/{TEAM}/modelcaches/{NAME}"
WARM_UP = "modelcache-warmup"
TOKENS = 64
# What the pod's server answers from now on; it keeps what it was asked last.
ANSWER = """
cat > /tmp/answer <<'END'
#!/bin/sh
head -c "$CONTENT_LENGTH" > /tmp/asked
printf 'HTTP/1.0 {status}\\r\\n\\r\\n{words}'
END
chmod +x /tmp/answer
mkdir -p /tmp/www/cgi-bin
mv /tmp/answer /tmp/www/cgi-bin/generate
"""
SERVE = "httpd -p 8000 -h /tmp/www\ntrap 'exit 0' TERM\nsleep infinity & wait"
REFUSAL = ("400 Bad Request", "no such model")
GRACE_SECONDS = 60
# A program that drains as docs/client.md asks for it; its last request ends when we say so.
READER = """
import signal, sys, time
from pathlib import Path
import modelcache

def end(number, frame):
    print("told to end", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
with modelcache.attach(timeout=60) as attachment:
    attachment.version()
    print("attached", flush=True)
    while not attachment.is_draining:
        time.sleep(0.1)
    print("takes no new work", flush=True)
    while not Path("/tmp/done").exists():
        time.sleep(0.1)
    print("closes", flush=True)
signal.pause()
"""


def build_rollout(weight):
    cache = build_cache(TEAM, NAME, VERSIONS[0], copies=1)
    cache["spec"]["canary"] = {"modelVersion": VERSIONS[1], "weight": weight}
    return cache


def build_server(name, status, words):
    """A pod of the canary whose server answers so, and which asks for a warm-up."""
    script = ANSWER.format(status=status, words=words) + SERVE
    labels = {"modelcache.io/cache": NAME, "modelcache.io/track": "canary"}
    pod = build_pod(name, labels=labels, containers=[build_container(command=["sh", "-c", script])])
    pod["metadata"]["annotations"] = {
        "modelcache.io/warmup": "http://localhost:8000/cgi-bin/generate",
        "modelcache.io/warmup-tokens": str(TOKENS),
    }
    return pod


def look(product, name):
    """The pod; its main container's and its warm-up's status."""
    pod = product.cluster.api.get(f"{PODS}/{name}")
    found = {
        one["name"]: one
        for kind in ("initContainerStatuses", "containerStatuses")
        for one in pod["status"].get(kind, ())
    }
    return pod, found.get("main", {}), found.get(WARM_UP, {})


def is_ready(pod):
    return find_condition(pod["status"], "Ready").get("status") == "True"


def progressing(product):
    return find_condition(product.cluster.api.get(CACHE)["status"], "RolloutProgressing")


def await_reason(product, reason, words):
    def is_told():
        said = progressing(product)
        return said.get("reason") == reason and words in said["message"]

    wait_until(is_told, seconds=60, what=f"{reason} with {words!r}")


def weight(product):
    return product.cluster.api.get(CACHE)["status"]["traffic"]["canary"]


@pytest.fixture(scope="module")
def rollout(product):
    """The product with a canary on its node that is not asked to take traffic yet."""
    with reached_bucket(product, "models") as bucket:
        for seed, name in enumerate(VERSIONS, 90):
            for path, body in make_model(1_000_000, seed).items():
                bucket.put(f"{name}/{path}", body)
    cluster, where = product.cluster, (f"--namespace={TEAM}", f"modelcache/{NAME}")
    cluster.apply([build_version(TEAM, name, f"s3://models/{name}", ENDPOINT) for name in VERSIONS])
    cluster.apply([build_rollout(0)])
    cluster.kubectl("wait", *where, "--for=condition=CanaryResident", "--timeout=60s")
    yield product
    cluster.kubectl("delete", *where)


@pytest.fixture(scope="module")
def servers(rollout):
    """Two pods of the canary: one server loads still, one refuses what it is asked first."""
    names = ("warming", "refusing")
    for name, answer in zip(names, (("503 Loading", ""), REFUSAL), strict=True):
        rollout.cluster.api.create(PODS, build_server(name, *answer))
    yield names
    where = (f"--namespace={TEAM}", "--ignore-not-found", "--timeout=60s")
    rollout.cluster.kubectl("delete", "pods", *where, *names)


@pytest.mark.usefixtures("servers")
def test_a_warm_up_that_fails_keeps_its_pod_unready_and_the_weight_at_0_and_says_why(product):
    def has_failed():
        _pod, main, warm_up = look(product, "refusing")
        return main.get("ready") and warm_up.get("lastState", {}).get("terminated")

    wait_until(has_failed, seconds=60, what="the refusal")
    product.cluster.apply([build_rollout(5)])
    await_reason(product, "CanaryWarmUpFailed", "refusing: the request is refused")
    said = progressing(product)["message"]
    assert "0 of 2 pods of the canary are Ready" in said
    assert "the server answers 400: no such model" in said
    assert weight(product) == 0
    pod, main, warm_up = look(product, "refusing")
    assert (is_ready(pod), main["ready"], warm_up["ready"]) == (False, True, False)
    events = product.cluster.kubectl("get", "events", f"--namespace={TEAM}", "--output=json")
    reasons = {(e["involvedObject"]["name"], e["reason"]) for e in json.loads(events)["items"]}
    assert (NAME, "CanaryWarmUpFailed") in reasons


def test_a_pod_is_ready_once_its_server_has_answered_and_the_weight_goes_up_then(product, servers):
    _warming, refusing = servers
    where = (f"--namespace={TEAM}", "--timeout=60s")
    product.cluster.kubectl("delete", "pod", refusing, *where)
    await_reason(product, "CanaryPodsNotReady", "1 are being warmed up")
    pod, main, warm_up = look(product, "warming")
    assert (is_ready(pod), main["ready"], warm_up["ready"]) == (False, True, False)
    assert weight(product) == 0
    product.run(pod, ANSWER.format(status="200 OK", words="{}"))
    product.cluster.kubectl("wait", "pod/warming", "--for=condition=Ready", *where)
    await_reason(product, "WeightReached", "5 %")
    assert weight(product) == 5
    prompt = json.loads(product.run(pod, "cat /tmp/asked"))["prompt"]
    assert len(prompt.split()) == TOKENS
    log = product.cluster.kubectl(
        "logs", "warming", f"--namespace={TEAM}", f"--container={WARM_UP}"
    )
    assert "not yet: the server answers 503" in log
    assert "warm after" in log.splitlines()[-1]
    assert look(product, "warming")[2]["restartCount"] == 0


@pytest.mark.usefixtures("rollout")
def test_a_pod_that_is_deleted_ends_after_its_reader_has_closed_and_within_its_grace(
    product, scratch
):
    drain = {"exec": {"command": ["modelcache", "drain", f"--timeout={GRACE_SECONDS - 10}s"]}}
    container = build_container(
        image=reference_of("agent"), command=["python3", "-c", READER], lifecycle={"preStop": drain}
    )
    pod = product.start_pod(
        TEAM,
        build_pod(
            "drained",
            labels={"modelcache.io/cache": NAME},
            terminationGracePeriodSeconds=GRACE_SECONDS,
            containers=[container],
        ),
    )
    log, where = scratch / "drained.log", f"--namespace={TEAM}"
    flags = (f"--kubeconfig={product.cluster.kubeconfig}", where, "--container=main", "--follow")
    with log.open("w") as output:
        follower = subprocess.Popen([str(kubectl()), "logs", "drained", *flags], stdout=output)
    try:
        wait_until(lambda: "attached" in log.read_text(), seconds=60, what="the attachment")
        product.cluster.kubectl("delete", "pod", "drained", where, "--wait=false")
        began = time.monotonic()
        wait_until(lambda: "no new work" in log.read_text(), seconds=30, what="the drain's word")
        now, main, _none = look(product, "drained")
        assert "deletionTimestamp" in now["metadata"]
        assert "running" in main["state"], "the drain waits for its reader"
        product.run(pod, "touch /tmp/done")
        gone = ("wait", "pod/drained", where, "--for=delete", f"--timeout={GRACE_SECONDS}s")
        product.cluster.kubectl(*gone)
        assert time.monotonic() - began < GRACE_SECONDS
    finally:
        follower.wait(60)
    lines = ["attached", "takes no new work", "closes", "told to end"]
    assert log.read_text().splitlines() == lines
    about = f"involvedObject.uid={pod['metadata']['uid']}"
    events = ("get", "events", where, f"--field-selector={about}", "--output=json")
    reasons = {one["reason"] for one in json.loads(product.cluster.kubectl(*events))["items"]}
    assert "Killing" in reasons
    assert "FailedPreStopHook" not in reasons
