"""The webhook as a process under its own account, asked by a real API server; and its absence."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from injection.conftest import Door
from injection.pods import CACHES, LABEL, ROWS, cache_of, copy_of, make_pod
from modelcache_operator.decide.world import ObjectKey
from modelcache_operator.injection import InjectionSettings, make_injection
from modelcache_operator.injection_review import review_pod
from modelcache_operator.injection_webhook import TIMEOUT_SECONDS, build_registration
from modelcache_operator.json_patch import add_all
from modelcache_operator.tls import issue_leaf, make_authority
from modelcache_testbed.waiting import wait_until

SETTINGS = InjectionSettings("registry.example/agent:1")
SYSTEM = "modelcache-system"
FILES = Path(__file__).parents[2] / "charts" / "modelcache" / "files"
MARK = "modelcache.io/injected"


class Certificates:
    """An authority, and leaves of it written where the webhook reads them."""

    def __init__(self, folder):
        self.authority = make_authority(dt.datetime.now(dt.UTC))
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.renew()

    def renew(self):
        leaf = issue_leaf(self.authority, ["127.0.0.1"], dt.datetime.now(dt.UTC))
        self.certificate.write_bytes(leaf.certificate)
        self.key.write_bytes(leaf.key)

    @property
    def bundle(self):
        return base64.b64encode(self.authority.certificate).decode()


def register(cluster, port, bundle):
    client = {"url": f"https://127.0.0.1:{port}/inject", "caBundle": bundle}
    cluster.apply([build_registration(client, SYSTEM)])


def unregister(cluster):
    cluster.kubectl("delete", "mutatingwebhookconfiguration", "modelcache-injection")


def start_webhook(cluster, folder, certificates):
    """The process and its port."""
    credentials = cluster.service_account_kubeconfig(SYSTEM, "modelcache-webhook", folder)
    log = folder / "webhook.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "modelcache_operator", "webhook"),
                *("--host=127.0.0.1", "--port=0", f"--wait-image={SETTINGS.wait_image}"),
                f"--tls-cert-file={certificates.certificate}",
                f"--tls-key-file={certificates.key}",
                f"--kubeconfig={credentials.kubeconfig}",
            ],
            stderr=sink,
        )

    def find_port():
        assert process.poll() is None, log.read_text()
        return re.search(r"answering on port (\d+)", log.read_text())

    wait_until(lambda: find_port() is not None, seconds=30, what="the webhook's port")
    return process, int(find_port()[1])


@pytest.fixture(scope="module")
def hooked(served, room, door, tmp_path_factory):
    """The door, with the webhook in force in place of the policies."""
    for kind in ("mutatingadmissionpolicybinding", "mutatingadmissionpolicy"):
        served.kubectl(
            "delete", kind, "modelcache-injection", "modelcache-placement", "--ignore-not-found"
        )
    served.apply(FILES / "accounts.yaml")
    served.apply(FILES / "rbac-webhook.yaml")
    wait_until(
        lambda: MARK not in door.pass_through(make_pod())["annotations"],
        seconds=30,
        what="no policy in force",
    )
    expected = {}
    for row in ROWS:
        injection = make_injection(copy_of(row), cache_of(row), SETTINGS)
        expected[row.id] = door.pass_through(add_all(copy_of(row), injection.operations))
    folder = tmp_path_factory.mktemp("webhook")
    certificates = Certificates(folder)
    process, port = start_webhook(served, folder, certificates)
    wait_until(lambda: is_healthy(port, certificates), seconds=30, what="a healthy webhook")
    register(served, port, certificates.bundle)
    wait_until(
        lambda: MARK in door.pass_through(make_pod())["annotations"],
        seconds=30,
        what="the webhook in force",
    )
    try:
        yield expected
    finally:
        process.terminate()
        assert process.wait(10) == 0
        unregister(served)


def is_healthy(port, certificates):
    context = ssl.create_default_context(cadata=certificates.authority.certificate.decode())
    try:
        url = f"https://127.0.0.1:{port}/healthz"
        with urllib.request.urlopen(url, context=context, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.mark.cluster
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_the_webhook_gives_what_the_definition_gives(hooked, door, row):
    assert door.pass_through(copy_of(row)) == hooked[row.id]


@pytest.mark.cluster
def test_C48_the_systems_own_namespace_is_left_alone(hooked, served):
    assert Door(served, SYSTEM).pass_through(make_pod())["annotations"] == {}


@pytest.fixture(params=["nobody listens", "somebody listens and sleeps"])
def dead_port(request):
    """A port behind which no answer comes from."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param != "nobody listens":
            # Connections are taken by the kernel, and nobody ever speaks: longer than 30 s.
            listener.listen(64)
        yield listener.getsockname()[1]


@pytest.mark.cluster
def test_C48_a_dead_webhook_concerns_nobody_else(hooked, served, room, dead_port, tmp_path):
    live = served.api.get(
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/modelcache-injection"
    )
    doors = [Door(served, name) for name in ("default", "kube-system", SYSTEM, room)]
    register(served, dead_port, Certificates(tmp_path).bundle)
    try:
        model = Door(served, room)
        wait_until(
            lambda: MARK not in model.pass_through(make_pod())["annotations"],
            seconds=60,
            what="the dead webhook registered",
        )
        for door in doors:
            started = time.monotonic()
            door.pass_through(make_pod(labels={"app": "plain"}))
            assert time.monotonic() - started < TIMEOUT_SECONDS, "a plain pod was held up"
        # The documented policy: a model pod is created, late by the time-out at most, as it was.
        started = time.monotonic()
        stored = model.pass_through(make_pod())
        assert time.monotonic() - started < TIMEOUT_SECONDS + 3
        assert stored["annotations"] == {}
        assert "volumes" not in stored["spec"]
        # Our own namespace is not even asked for.
        started = time.monotonic()
        Door(served, SYSTEM).pass_through(make_pod())
        assert time.monotonic() - started < TIMEOUT_SECONDS
    finally:
        served.apply(
            [
                {key: live[key] for key in ("apiVersion", "kind", "webhooks")}
                | {"metadata": {"name": "modelcache-injection"}}
            ]
        )


def review(pod, **request):
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u", "operation": "CREATE", "namespace": "ns", "object": pod} | request,
    }


def find(key):
    return CACHES.get(key.name) if key.namespace == "ns" else None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_review_is_always_allowed_and_its_patch_is_the_definitions(row):
    response = review_pod(review(copy_of(row)), find, SETTINGS)["response"]
    assert (response["uid"], response["allowed"]) == ("u", True)
    operations = json.loads(base64.b64decode(response.get("patch", "W10=")))
    assert operations == list(make_injection(row.pod, cache_of(row), SETTINGS).operations)
    assert ("patchType" in response) is bool(operations)


def test_warnings_name_what_was_kept_and_who_is_missing():
    pod = make_pod(
        labels={LABEL: "unknown"},
        volumes=[{"name": "modelcache", "emptyDir": {}}],
    )
    warnings = review_pod(review(pod), find, SETTINGS)["response"]["warnings"]
    kept, missing = warnings
    assert kept == "modelcache: the pod's own settings were kept: volume modelcache"
    assert missing.startswith("modelcache: there is no ModelCache unknown in namespace ns: ")


@pytest.mark.parametrize("request_", [{"operation": "UPDATE"}, {"object": None}])
def test_anything_but_a_new_pod_passes(request_):
    response = review_pod(review(make_pod(), **request_), find, SETTINGS)["response"]
    assert response == {"uid": "u", "allowed": True}


@pytest.mark.parametrize("body", [{}, {"request": None}, {"request": {"uid": ""}}])
def test_what_is_no_review_is_refused(body):
    with pytest.raises(ValueError, match="no request"):
        review_pod(body, find, SETTINGS)


def test_the_look_up_is_by_the_reviews_namespace_not_the_pods():
    asked = []

    def ask(key: ObjectKey):
        asked.append(key)

    pod = make_pod()
    pod["metadata"]["namespace"] = "claimed"
    review_pod(review(pod), ask, SETTINGS)
    assert asked == [ObjectKey("ns", "m")]
