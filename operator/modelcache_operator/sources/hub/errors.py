"""From what goes wrong with a hub to one reason and one sentence: pure.

Text of the hub never enters a message; addresses and tokens neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final

import httpx2

from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.connections import NO_ANSWER, ElsewhereError
from modelcache_operator.sources.egress import RefusedAddressError
from modelcache_operator.sources.hub.answer import HubAnswer, HubAnswerError
from modelcache_operator.sources.hub.endpoint import HubEndpoint
from modelcache_operator.sources.hub.library import OddAnswerError
from modelcache_operator.sources.hub.location import HubLocation
from modelcache_operator.sources.no_answer import explain_no_answer

_SOON: Final = 15.0
_LATER: Final = 60.0
# The hub's words for a token that it does not know, whatever was asked for.
_BAD_TOKEN: Final = "Invalid credentials in Authorization header"  # noqa: S105 - no token
_DISABLED: Final = "Access to this resource is disabled."

HUB_ERRORS: Final = (
    HubAnswerError,
    ElsewhereError,
    OddAnswerError,
    RefusedAddressError,
    httpx2.HTTPError,
    httpx2.InvalidURL,
    *NO_ANSWER,
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What was asked of whom, for the message. `is_resolved`: of a commit that was there before."""

    endpoint: HubEndpoint
    location: HubLocation
    is_anonymous: bool
    is_resolved: bool
    now: datetime

    @property
    def where(self) -> str:
        """The hub, for a message."""
        return self.endpoint.origin.authority

    @property
    def name(self) -> str:
        """The repository, for a message."""
        return quote(self.location.repository)


def explain(error: Exception, attempt: Attempt) -> SourceError:
    """The reason for one of HUB_ERRORS, with cause, cure and when to try again."""
    if isinstance(error, RefusedAddressError):
        return SourceError(Reason.SOURCE_NOT_ALLOWED, error.message)
    if isinstance(error, HubAnswerError):
        return _explain_answer(error.answer, attempt)
    if isinstance(error, OddAnswerError | httpx2.HTTPError | httpx2.InvalidURL):
        return SourceError(
            Reason.SOURCE_ERROR,
            f"the answer of {attempt.where} is not that of a hub: check source.endpoint",
            retry_after_seconds=_LATER,
        )
    return explain_no_answer(error, attempt.where, "source.endpoint")


def _explain_answer(answer: HubAnswer, attempt: Attempt) -> SourceError:
    return (
        _explain_load(answer, attempt)
        or _explain_word(answer, attempt)
        or _explain_status(answer, attempt)
    )


def _explain_load(answer: HubAnswer, attempt: Attempt) -> SourceError | None:
    """The hub has no time for us, or no health."""
    if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        cure = "; with a token in a Secret it allows more" if attempt.is_anonymous else ""
        return SourceError(
            Reason.THROTTLED,
            f"{attempt.where} asks for fewer requests ({answer.shown}){cure}",
            retry_after_seconds=answer.read_pause(attempt.now, default=_LATER),
        )
    failed = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    if failed or answer.status == HTTPStatus.REQUEST_TIMEOUT:
        pause = answer.read_pause(attempt.now, default=_SOON)
        message = f"{attempt.where} failed with {answer.shown}; it is tried again"
        return _unreachable(message, pause)
    return None


def _explain_word(answer: HubAnswer, attempt: Attempt) -> SourceError | None:
    """The hub says what it is, in a word of its own."""
    if answer.code == "GatedRepo":
        return _gated(answer, attempt)
    if answer.code in ("RevisionNotFound", "EntryNotFound"):
        return _no_revision(answer, attempt)
    if answer.message == _DISABLED:
        return SourceError(Reason.SOURCE_NOT_FOUND, f"{attempt.where} has disabled {attempt.name}")
    return None


def _explain_status(answer: HubAnswer, attempt: Attempt) -> SourceError:
    if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return _denied(answer, attempt)
    if answer.status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return _not_found(answer, attempt)
    return SourceError(
        Reason.SOURCE_ERROR,
        f"{attempt.where} answered {answer.shown}: check that source.endpoint is a hub",
        retry_after_seconds=_LATER,
    )


def _gated(answer: HubAnswer, attempt: Attempt) -> SourceError:
    cure = (
        "accept its conditions on its page there, and name a Secret with HF_TOKEN of that account "
        "in source.credentialsSecretRef"
        if attempt.is_anonymous
        else "let the account of the Secret's HF_TOKEN accept its conditions on its page there, "
        "wait until that is granted, and let the token read gated repositories"
    )
    return SourceError(
        Reason.SOURCE_GATED,
        f"{attempt.name} is open at {attempt.where} to admitted accounts only ({answer.shown}): "
        f"{cure}",
    )


def _no_revision(answer: HubAnswer, attempt: Attempt) -> SourceError:
    if attempt.is_resolved:
        return _gone(answer, attempt)
    return SourceError(
        Reason.REVISION_NOT_FOUND,
        f"{attempt.name} has no branch, tag or commit {quote(attempt.location.revision)} at "
        f"{attempt.where}: correct what follows @ in source.uri, in a new ModelVersion",
    )


def _gone(answer: HubAnswer, attempt: Attempt) -> SourceError:
    return SourceError(
        Reason.SOURCE_GONE,
        f"{attempt.where} no longer has the commit of {attempt.name} that was resolved "
        f"({answer.shown}): its history was rewritten, or it was deleted or hidden",
    )


def _denied(answer: HubAnswer, attempt: Attempt) -> SourceError:
    if answer.message == _BAD_TOKEN and not attempt.is_anonymous:
        message = (
            f"{attempt.where} does not know the token: write a valid one as HF_TOKEN into the "
            "Secret; it is read again by itself"
        )
    elif attempt.is_anonymous:
        message = (
            f"{attempt.where} shows {attempt.name} to nobody without a token ({answer.shown}); it "
            "answers so for private repositories and for those that do not exist: correct "
            "source.uri, or name a Secret with HF_TOKEN in source.credentialsSecretRef"
        )
    else:
        message = (
            f"{attempt.where} does not let the Secret's HF_TOKEN read {attempt.name} "
            f"({answer.shown}): give the token that right, or correct source.uri"
        )
    return SourceError(Reason.AUTH_FAILED, message)


def _not_found(answer: HubAnswer, attempt: Attempt) -> SourceError:
    if attempt.is_resolved:
        return _gone(answer, attempt)
    more = "" if attempt.is_anonymous else ", or let the account of the Secret's HF_TOKEN see it"
    return SourceError(
        Reason.SOURCE_NOT_FOUND,
        f"{attempt.where} has no model repository {attempt.name} ({answer.shown}); it answers so "
        f"for private ones that it hides, too: correct source.uri or source.endpoint{more}",
    )


def _unreachable(message: str, pause: float = _SOON) -> SourceError:
    return SourceError(Reason.ENDPOINT_UNREACHABLE, message, retry_after_seconds=pause)
