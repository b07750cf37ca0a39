"""Whose token it is, as the API server says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_CLAIM: Final = "authentication.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """The answer to a TokenReview. Nothing in it may be used unless `authenticated`."""

    authenticated: bool
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    error: str = ""

    @property
    def node_name(self) -> str | None:
        """The node that the token is bound to."""
        return self._claim("node-name")

    @property
    def node_uid(self) -> str | None:
        """UID of that node."""
        return self._claim("node-uid")

    @property
    def pod_name(self) -> str | None:
        """The pod that the token is bound to."""
        return self._claim("pod-name")

    @property
    def pod_uid(self) -> str | None:
        """UID of that pod."""
        return self._claim("pod-uid")

    def _claim(self, name: str) -> str | None:
        values = self.extra.get(_CLAIM + name, ())
        return values[0] if len(values) == 1 else None


def parse_token_review(review: Mapping[str, Any]) -> TokenIdentity:
    """The identity in a TokenReview's status; not authenticated unless it says so plainly."""
    status = review.get("status") or {}
    user = status.get("user") or {}
    return TokenIdentity(
        authenticated=status.get("authenticated") is True,
        username=user.get("username", ""),
        uid=user.get("uid", ""),
        groups=tuple(user.get("groups") or ()),
        audiences=tuple(status.get("audiences") or ()),
        extra={key: tuple(values) for key, values in (user.get("extra") or {}).items()},
        error=status.get("error", ""),
    )
