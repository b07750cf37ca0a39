"""The Gateway API's own CRDs, from the Go module that e2e/cluster/go/gateway-api pins."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from modelcache_testbed.errors import BuildFailedError
from modelcache_testbed.folders import modules_folder
from modelcache_testbed.go_toolchain import find_go

GATEWAY_API_VERSION = "v1.5.1"
HTTP_ROUTE_CRD = "httproutes.gateway.networking.k8s.io"
MODULE = "sigs.k8s.io/gateway-api"


def http_route_crd() -> Path:
    """Return the file of the HTTPRoute CRD; the module is downloaded once, checked by go.sum."""
    result = subprocess.run(
        [str(find_go()), "mod", "download", "-json", f"{MODULE}@{GATEWAY_API_VERSION}"],
        cwd=modules_folder() / "gateway-api",
        env={**os.environ, "GOWORK": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"},
        capture_output=True,
        text=True,
        check=False,
    )
    answer = json.loads(result.stdout or "{}")
    if result.returncode or "Dir" not in answer:
        cause = answer.get("Error") or result.stderr.strip()
        raise BuildFailedError(f"{MODULE} {GATEWAY_API_VERSION} cannot be had: {cause}")
    group, plural = "gateway.networking.k8s.io", "httproutes"
    return Path(answer["Dir"]) / "config" / "crd" / "standard" / f"{group}_{plural}.yaml"
