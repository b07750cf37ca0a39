"""What agents show each other: the name in a certificate, and the operator's ticket. Pure.

A ticket is `<payload>.<signature>`, both base64url. The payload says which node may read which
version, and until when; any agent can check it with nothing but the operator's authority.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import Any, Final

_FORMAT: Final = 1
_MAX_TICKET_LENGTH: Final = 2048
_UID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
# Reserved for private use: no name of the world is ever below it.
_PEER_DOMAIN: Final = "node.modelcache.internal"


@dataclass(frozen=True, slots=True)
class Ticket:
    """Leave for one node to read one version from other nodes until `expires_at` (Unix seconds)."""

    node_uid: str
    uid: str
    source_digest: str
    expires_at: float


def make_peer_name(node_uid: str) -> str:
    """The DNS name in the certificate of that Node's agent. Raises ValueError for odd UIDs."""
    if _UID.fullmatch(node_uid) is None:
        message = f"not a Node's UID: {node_uid[:80]!r}"
        raise ValueError(message)
    return f"{node_uid.lower()}.{_PEER_DOMAIN}"


def pack_ticket(ticket: Ticket) -> bytes:
    """The payload that is signed."""
    fields = {
        "format": _FORMAT,
        "node": ticket.node_uid,
        "uid": ticket.uid,
        "source": ticket.source_digest,
        "expires": ticket.expires_at,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def join_ticket(payload: bytes, signature: bytes) -> str:
    """The ticket as it travels."""
    return f"{_encode(payload)}.{_encode(signature)}"


def split_ticket(text: str) -> tuple[bytes, bytes]:
    """Payload and signature. Raises ValueError."""
    if len(text) > _MAX_TICKET_LENGTH:
        raise ValueError("the ticket is too long")
    payload, dot, signature = text.partition(".")
    if not dot:
        raise ValueError("the ticket has no signature")
    return _decode(payload), _decode(signature)


def unpack_ticket(payload: bytes) -> Ticket:
    """The ticket of a payload whose signature was found good. Raises ValueError."""
    try:
        fields: Any = json.loads(payload)
        if fields["format"] != _FORMAT:
            raise ValueError("the ticket has another format")
        return Ticket(
            str(fields["node"]),
            str(fields["uid"]),
            str(fields["source"]),
            float(fields["expires"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError("the ticket lacks a field") from error


def describe_ticket_fault(
    ticket: Ticket, *, peer_name: str | None, uid: str, source_digest: str, now: float
) -> str | None:
    """Why the ticket does not open this to the holder of that certificate, or None."""
    if peer_name != make_peer_name(ticket.node_uid):
        return "the ticket is another node's"
    if (ticket.uid, ticket.source_digest) != (uid, source_digest):
        return "the ticket is for another version"
    if ticket.expires_at <= now:
        return "the ticket has run out"
    return None


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("the ticket is not base64") from error
