"""From a connection that brought no answer to one reason and one sentence: pure."""

from __future__ import annotations

import socket
import ssl
from typing import Final

import httpcore2

from modelcache_api.names import Reason
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.causes import describe_tls, find_cause
from modelcache_operator.sources.connections import ElsewhereError

_SOON: Final = 15.0
_LATER: Final = 60.0


def explain_no_answer(error: Exception, where: str, field: str) -> SourceError:
    """The reason for one of NO_ANSWER. `field` of the spec says where the server is."""
    if isinstance(error, ElsewhereError):
        where = f"{where} redirects to {error.authority}, which"
    if find_cause(error, ssl.SSLError) is not None:
        return SourceError(
            Reason.TLS_FAILED,
            f"{where} has no TLS that is trusted: {describe_tls(error)}; give the CA's "
            f"certificate with source.caBundleRef, or correct {field}",
            retry_after_seconds=_LATER,
        )
    if find_cause(error, socket.gaierror) is not None:
        what = "does not resolve"
    elif find_cause(error, httpcore2.TimeoutException) or find_cause(error, TimeoutError):
        what = "does not answer in time"
    elif find_cause(error, ConnectionRefusedError) is not None:
        what = "refuses connections"
    elif find_cause(error, httpcore2.ConnectError) is not None:
        what = "cannot be reached"
    else:
        what = "breaks the connection off"
    return SourceError(
        Reason.ENDPOINT_UNREACHABLE,
        f"{where} {what}: check {field}, and network policies of the operator",
        retry_after_seconds=_SOON,
    )
