"""What lies at the bottom of a client's error: pure."""

from __future__ import annotations

import ssl
from typing import TypeVar

from urllib3.util.ssl_match_hostname import CertificateError

_T = TypeVar("_T", bound=BaseException)


def describe_tls(error: BaseException) -> str:
    """Why there is no trusted TLS connection, for a message."""
    verification = find_cause(error, ssl.SSLCertVerificationError)
    if verification is not None:
        return verification.verify_message or "the certificate is not valid"
    if find_cause(error, CertificateError) is not None:
        return "the certificate is for another host name (mismatch)"
    other = find_cause(error, ssl.SSLError)
    reason = other.reason if other is not None else None
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return "it does not speak TLS at that port"
    return (reason or "the handshake failed").replace("_", " ").lower()


def find_cause(error: BaseException, kind: type[_T]) -> _T | None:
    """The first error of that kind among the error, its causes, contexts and arguments."""
    open_errors: list[object] = [error]
    seen: set[int] = set()
    while open_errors:
        current = open_errors.pop()
        if not isinstance(current, BaseException) or id(current) in seen:
            continue
        if isinstance(current, kind):
            return current
        seen.add(id(current))
        inner = getattr(current, "kwargs", None) or {}
        open_errors += [current.__cause__, current.__context__, getattr(current, "reason", None)]
        open_errors += [*current.args, *(inner.values() if isinstance(inner, dict) else ())]
    return None
