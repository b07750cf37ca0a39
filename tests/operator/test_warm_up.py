"""A canary's pods are warm before its weight moves: the injected container's own program at work.

The kubelet is played: it starts what the pod's spec says, and reports what it would see.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fakes.stage import _condition
from fakes.tenant import Tenant
from modelcache_kube import EVENTS, MODEL_CACHES, PODS
from modelcache_operator.injection import InjectionSettings, make_injection
from modelcache_operator.json_patch import add_all

pytestmark = pytest.mark.cluster
CONTAINER = "modelcache-warmup"


class Engine:
    """The server of a pod: 503 until it `serves`, and the lengths of the prompts it was sent."""

    def __init__(self) -> None:
        self.serves = threading.Event()
        self.asked = threading.Event()
        self.lengths: list[int] = []


@contextmanager
def running_engine() -> Iterator[tuple[Engine, str]]:
    engine = Engine()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            engine.asked.set()
            if engine.serves.is_set():
                engine.lengths.append(len(body.split()))
            self.send_response(200 if engine.serves.is_set() else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """A test's output is no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield engine, f"http://127.0.0.1:{server.server_port}/v1/completions"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class PlayedPod:
    """A pod of the canary, as injection makes it, and the program of its warm-up container."""

    def __init__(self, stage, folder, url: str, **said: str) -> None:
        self.stage, self.report = stage, folder / "last-words"
        said = {f"modelcache.io/warmup-{key}": value for key, value in said.items()}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "embed-0",
                "namespace": stage.namespace,
                "labels": {"modelcache.io/cache": "c1", "modelcache.io/track": "canary"},
                "annotations": {"modelcache.io/warmup": url, **said},
            },
            "spec": {
                "nodeName": stage.nodes[0],
                "containers": [{"name": "engine", "image": "engine:1"}],
            },
        }
        injection = make_injection(pod, None, InjectionSettings("agent:1"))
        self.pod = add_all(pod, injection.operations)

    async def create(self) -> None:
        await self.stage.kube.create(PODS, self.pod)

    @property
    def container(self) -> dict:
        (found,) = (c for c in self.pod["spec"]["initContainers"] if c["name"] == CONTAINER)
        return found

    def start(self) -> subprocess.Popen:
        """What the kubelet starts, with another file for last words."""
        container = self.container
        assert container["restartPolicy"] == "Always"
        self.report.write_text("")
        env = {one["name"]: one["value"] for one in container["env"]}
        return subprocess.Popen(
            [sys.executable, "-m", "modelcache_agent.entry", *container["command"][1:]],
            env={**os.environ, **env, "MODELCACHE_AGENT_REPORT": str(self.report)},
        )

    def probe(self) -> bool:
        """The readiness probe of the pod's spec, at the other file."""
        *command, _ = self.container["readinessProbe"]["exec"]["command"]
        return subprocess.run([*command, str(self.report)], check=False).returncode == 0

    async def tell(self, *, exit_code: int | None = None) -> None:
        """The pod's status, by the probe that its spec has."""
        is_warm = exit_code is None and self.probe()
        state = {"running": {}}
        if exit_code is not None:
            message = self.report.read_text()
            state = {"terminated": {"exitCode": exit_code, "message": message}}
        seen = {
            "name": CONTAINER,
            "image": "agent:1",
            "imageID": "",
            "restartCount": 0,
            "ready": is_warm,
            "state": state,
        }
        condition = {"type": "Ready", "status": str(is_warm)}
        status = {"phase": "Running", "conditions": [condition], "initContainerStatuses": [seen]}
        await self.stage.kube.merge_patch(
            *(PODS, "embed-0", {"status": status}),
            namespace=self.stage.namespace,
            subresource="status",
        )


@pytest.fixture
async def stage_with_versions(stage):
    for name in ("m1", "m2"):
        await stage.apply_version(name)
    await stage.apply_cache(copies=1)
    await stage.until_cached(copies="1/1")
    return stage


async def try_canary(stage) -> None:
    spec = {"canary": {"modelVersion": "m2", "weight": 25}}
    await stage.kube.merge_patch(MODEL_CACHES, "c1", {"spec": spec}, namespace=stage.namespace)


async def said(stage) -> tuple[int, str, str]:
    """Weight in force, and reason and message of what it waits for."""
    found = await stage.cache()
    status = found.get("status", {})
    condition = next(
        (c for c in status.get("conditions", ()) if c["type"] == "RolloutProgressing"), {}
    )
    weight = status.get("traffic", {}).get("canary", 0)
    return weight, condition.get("reason", ""), condition.get("message", "")


async def test_the_weight_waits_until_the_pods_of_the_canary_are_warm(
    stage_with_versions, tmp_path
):
    stage = stage_with_versions
    with running_engine() as (engine, url):
        pod = PlayedPod(stage, tmp_path, url, tokens="300")
        await pod.create()
        program = pod.start()
        try:
            await pod.tell()
            await try_canary(stage)
            await Tenant(stage).show_canary("embed-0", "m2")
            words = "0 of 1 pods of the canary are Ready, 1 are being warmed up"
            await stage.until(
                lambda: said(stage),
                lambda found: found[:2] == (0, "CanaryPodsNotReady") and words in found[2],
            )
            assert engine.asked.wait(60)
            assert not pod.report.read_text()
            engine.serves.set()

            async def last_words() -> str:
                return pod.report.read_text()

            await stage.until(last_words, lambda found: found.startswith("warm after"), seconds=60)
            await pod.tell()
            await stage.until(lambda: said(stage), lambda found: found[:2] == (25, "WeightReached"))
            assert program.poll() is None, "it stays, or the kubelet would start it again"
            assert engine.lengths
            assert engine.lengths[0] >= 300
        finally:
            program.terminate()
            assert program.wait(30) == 143


async def test_a_warm_up_that_fails_has_reason_event_and_metric_and_moves_no_weight(
    stage_with_versions, tmp_path
):
    stage = stage_with_versions
    with running_engine() as (_engine, url):
        pod = PlayedPod(stage, tmp_path, url, deadline="1s")
        await pod.create()
        code = pod.start().wait(60)
        assert pod.report.read_text()
        assert not pod.probe(), "a probe just before the program's end"
        await pod.tell(exit_code=code)
        await try_canary(stage)
        words = "the warm-up of pod embed-0: not warm within 1 s: the server answers 503"
        await stage.until(
            lambda: said(stage),
            lambda found: found[:2] == (0, "CanaryWarmUpFailed") and words in found[2],
        )

    async def reasons() -> set[str]:
        events = (await stage.kube.list(EVENTS, stage.namespace)).items
        return {event["reason"] for event in events}

    await stage.until(reasons, lambda found: "CanaryWarmUpFailed" in found)
    metrics = await stage.metrics()
    labels = f'name="c1",namespace="{stage.namespace}",reason="CanaryWarmUpFailed"'
    assert f"modelcache_cache_rollout{{{labels}}} 1.0" in metrics
    assert _condition(await stage.cache(), "Ready") == ("True", "Cached")
