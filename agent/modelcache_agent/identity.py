"""Which Node this agent runs on, as its bound token says."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """A Node's name and UID."""

    name: str
    uid: str


class IdentityError(Exception):
    """The identity is missing or contradicts itself; one sentence with the cure."""


def find_identity(
    node_name: str | None, node_uid: str | None, token_file: Path | None
) -> NodeIdentity:
    """The Node by options and token. What is said twice must agree.

    Raises:
        IdentityError: nothing says it, or two sources differ.
    """
    claimed = None if token_file is None else read_node_claim(_read(token_file))
    name = _agree("--node-name", node_name, claimed.name if claimed else None)
    uid = _agree("--node-uid", node_uid, claimed.uid if claimed else None)
    return NodeIdentity(name, uid)


def read_node_claim(token: str) -> NodeIdentity | None:
    """The Node that a service account's token is bound to, or None.

    The signature is not checked: the API server and the operator do that when we use the token;
    here it only tells where we are.
    """
    try:
        payload = token.split(".")[1]
        padded = payload + "=" * (-len(payload) % 4)
        claims: Any = json.loads(base64.urlsafe_b64decode(padded))
        node = claims["kubernetes.io"]["node"]
        return NodeIdentity(str(node["name"]), str(node["uid"]))
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def _read(token_file: Path) -> str:
    try:
        return token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise IdentityError(
            f"--grant-token-file {token_file} cannot be read ({error}): mount a projected token "
            "with audience modelcache-grant"
        ) from error


def _agree(option: str, given: str | None, claimed: str | None) -> str:
    if given is not None and claimed is not None and given != claimed:
        raise IdentityError(
            f"{option} is {given!r}, the token is bound to {claimed!r}: "
            "leave the option out or use the token of this node's pod"
        )
    found = given if given is not None else claimed
    if found is None:
        raise IdentityError(
            f"the node is unknown: give {option}, or --grant-token-file with a token that is bound "
            "to this node's pod"
        )
    return found
