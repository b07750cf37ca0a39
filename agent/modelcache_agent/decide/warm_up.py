"""What a server that has just started is asked, and what its answers mean. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

DEFAULT_TOKENS: Final = 512
DEFAULT_BODY: Final = '{"prompt": "{prompt}", "max_tokens": 1}'
MOST_TOKENS: Final = 1_000_000
_PROMPT: Final = "{prompt}"
# One token in the vocabularies of the usual tokenizers, with the space before it.
_WORD: Final = " the"
_MOST_WORDS_SHOWN: Final = 160
# What a server says that does not serve yet, or has no time.
_NOT_YET: Final = frozenset(
    {
        HTTPStatus.NOT_FOUND,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_EARLY,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)


class Outcome(Enum):
    """What follows from an answer."""

    WARM = auto()
    NOT_YET = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class Judgement:
    """What follows, and why in one line."""

    outcome: Outcome
    message: str


@dataclass(frozen=True, slots=True)
class Address:
    """Where the pod's server listens."""

    host: str
    port: int
    path: str


def parse_address(url: str) -> Address:
    """The parts of an address.

    Raises:
        ValueError: it is none, with the cure.
    """
    parts = urlsplit(url.strip())
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(
            f"{url!r} is no http:// address: write http://localhost:8000/v1/completions"
        )
    path = parts.path or "/"
    return Address(
        parts.hostname, parts.port or 80, f"{path}?{parts.query}" if parts.query else path
    )


def build_body(template: str, tokens: int) -> bytes:
    """The template with a dummy prompt of about that many tokens in place of `{prompt}`.

    Raises:
        ValueError: it is no JSON then, with the cure.
    """
    text = template.replace(_PROMPT, _WORD.strip() + _WORD * (tokens - 1))
    try:
        json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error}): write for example {DEFAULT_BODY}") from None
    return text.encode()


def judge_answer(status: int, text: str) -> Judgement:
    """What an answer means: a server that refuses the request would refuse it again."""
    shown = " ".join(text.split())[:_MOST_WORDS_SHOWN]
    message = f"the server answers {status}" + (f": {shown}" if shown else "")
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Judgement(Outcome.WARM, message)
    if status in _NOT_YET or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Judgement(Outcome.NOT_YET, message)
    return Judgement(Outcome.REFUSED, message)
