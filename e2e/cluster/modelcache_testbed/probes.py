"""Asking a server on the loopback whether it is well."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from modelcache_testbed.certificates import KeyPair


def answers_https(url: str, authority: Path, client: KeyPair | None = None) -> bool:
    """Say whether ``url`` answers with 200 under a certificate of ``authority``."""
    context = ssl.create_default_context(cafile=str(authority))
    if client:
        context.load_cert_chain(client.certificate, client.key)
    return _answers(url, urllib.request.HTTPSHandler(context=context))


def answers_http(url: str) -> bool:
    """Say whether ``url`` answers with 200."""
    return _answers(url, urllib.request.HTTPHandler())


def _answers(url: str, handler: urllib.request.BaseHandler) -> bool:
    # A proxy of the environment has no business on the loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), handler)
    try:
        with opener.open(url, timeout=2) as response:
            return bool(response.status == http.client.OK)
    except (OSError, http.client.HTTPException, urllib.error.URLError):
        return False
