"""What can go wrong between us and the API server.

KubeError
├── ApiUnavailable     no answer, time-out, 429 or 5xx: retry later (`retry_after`)
├── Conflict           409: the object changed, or another manager owns the field
├── AlreadyExists      409 on creation
├── NotFound           404
├── Expired            410: the resourceVersion is too old, list again
├── Forbidden          401, 403: credentials or RBAC
└── Invalid            400, 422 and other refusals: the request itself is wrong
"""
# ruff: noqa: N818 - the tree's root says Error; its leaves read as what happened

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

# A proxy may answer with a page of HTML: only its beginning belongs into a message.
_MAX_RAW_MESSAGE: Final = 200


class KubeError(Exception):
    """A request that did not succeed. `code` is the HTTP status, 0 without an answer."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after

    @property
    def names_an_object(self) -> bool:
        """True if the answer is about one object, not about a path that is not served."""
        return bool(self.details.get("name"))


class ApiUnavailable(KubeError):
    """No answer, or one that says later. `retry_after` in seconds where the server named it."""


class Conflict(KubeError):
    """The object is not what the request expected, or another field manager owns a field."""


class AlreadyExists(KubeError):
    """An object of that name is there."""


class NotFound(KubeError):
    """There is no such object, or no such resource (is the CRD installed?)."""


class Expired(KubeError):
    """The resourceVersion or continue token is too old."""


class Forbidden(KubeError):
    """The credentials are refused, or RBAC does not allow the request."""


class Invalid(KubeError):
    """The API server refuses the request for what it says."""


_BY_CODE: Final[dict[int, type[KubeError]]] = {
    HTTPStatus.UNAUTHORIZED: Forbidden,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.GONE: Expired,
    HTTPStatus.REQUEST_TIMEOUT: ApiUnavailable,
    HTTPStatus.TOO_MANY_REQUESTS: ApiUnavailable,
}


def make_error(code: int, body: bytes, retry_after: str | None = None) -> KubeError:
    """The error that an answer stands for. Pure; bodies that are no Status are quoted shortly."""
    status = _parse_status(body)
    message = status.get("message") or body[:_MAX_RAW_MESSAGE].decode(errors="replace").strip()
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    kind = _BY_CODE.get(code, Invalid)
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        kind = ApiUnavailable
    elif code == HTTPStatus.CONFLICT and status.get("reason") == "AlreadyExists":
        kind = AlreadyExists
    elif code == HTTPStatus.UNPROCESSABLE_ENTITY and _is_of_another_uid(details):
        kind = Conflict
    return kind(
        f"{code}: {message}",
        code=code,
        details=details,
        retry_after=_seconds(retry_after) or _seconds(details.get("retryAfterSeconds")),
    )


def _parse_status(body: bytes) -> Mapping[str, Any]:
    try:
        status = json.loads(body)
    except ValueError:
        return {}
    return status if isinstance(status, dict) and status.get("kind") == "Status" else {}


def _is_of_another_uid(details: Mapping[str, Any]) -> bool:
    """True if an apply named the UID of an object that has been replaced: not a mistake, a race."""
    causes = details.get("causes")
    fields = {cause.get("field") for cause in causes if isinstance(cause, dict)} if causes else ()
    return fields == {"metadata.uid"}


def _seconds(value: object) -> float | None:
    """Seconds of a Retry-After; dates are not used by the API server and count as unknown."""
    try:
        return max(0.0, float(value)) if isinstance(value, int | str) else None
    except ValueError:
        return None
