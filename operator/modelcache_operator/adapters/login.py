"""Reads the credentials that the connection uses, for kopf's own client."""

from __future__ import annotations

from pathlib import Path

from kubernetes.aio import config as official_config
from kubernetes.aio.client import Configuration

from modelcache_operator.ports.login import ApiLogin

_SCHEME = "bearer"


async def read_login(kubeconfig: Path | None) -> ApiLogin:
    """The credentials of the pod, or of the kubeconfig; files are read anew on each call."""
    configuration = Configuration()
    if kubeconfig is None:
        official_config.load_incluster_config(  # type: ignore[no-untyped-call]
            client_configuration=configuration
        )
    else:
        await official_config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
        )
    token = configuration.api_key.get("BearerToken")
    return ApiLogin(
        server=configuration.host,
        ca_file=configuration.ssl_ca_cert,
        token=_strip_scheme(token) if token else None,
        certificate_file=configuration.cert_file,
        key_file=configuration.key_file,
        is_insecure=not configuration.verify_ssl,
    )


def _strip_scheme(header: str) -> str:
    """The official client writes "Bearer" from a kubeconfig and "bearer" in a pod."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == _SCHEME else header
