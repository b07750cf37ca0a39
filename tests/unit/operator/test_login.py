"""The credentials for kopf, which writes the scheme itself."""

import json

import pytest
from kubernetes.aio.config import incluster_config

from modelcache_operator.adapters.login import read_login


@pytest.fixture
def pod_files(tmp_path, monkeypatch):
    """A pod's own files, where the official client looks for them."""
    for name, text in (("TOKEN", "secret-token"), ("CERT", "an authority")):
        file = tmp_path / name
        file.write_text(text)
        monkeypatch.setattr(incluster_config, f"SERVICE_{name}_FILENAME", str(file))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")


async def test_a_pods_token_comes_without_its_scheme(pod_files):
    login = await read_login(None)
    assert login.token == "secret-token"
    assert login.server == "https://10.96.0.1:443"


async def test_a_kubeconfigs_token_comes_without_its_scheme(tmp_path):
    file = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    user = {"name": "u", "user": {"token": "secret-token"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    parts = {"clusters": [cluster], "users": [user], "contexts": [context]}
    file.write_text(json.dumps({"current-context": "x", **parts}))
    assert (await read_login(file)).token == "secret-token"
