"""Messages as no honest end sends them, by seed."""

from __future__ import annotations

import json
import random
import string

GOOD = (
    {"type": "hello", "versions": [1]},
    {"type": "demand", "id": 1},
    {"type": "index", "id": 2},
    {"type": "hold", "id": 3, "pid": 7, "versions": ["v1"]},
    {"type": "drain", "id": 4},
    {"type": "welcome", "version": 1},
    {"type": "done", "id": 1},
    {"type": "index", "id": 1, "sizeBytes": 10, "descriptors": 1},
    {"type": "holders", "id": 4, "holders": [{"pid": 7, "versions": ["m-v1"]}]},
    {"type": "refused", "id": None, "reason": "TooSlow", "message": "m"},
    {
        "type": "state",
        "progress": {
            "cache": "a/b",
            "state": "Ready",
            "reason": "Cached",
            "message": "",
            "percent": 100,
            "sizeBytes": 1,
            "canaryWeight": 3,
            "versions": [
                {
                    "name": "m-v1",
                    "uid": "v1",
                    "digest": "sha256:1",
                    "folder": "model",
                    "track": "stable",
                    "sizeBytes": 1,
                    "isLeaving": False,
                }
            ],
            "isDraining": False,
        },
    },
)
ODD = (
    None, True, False, -1, 0, 1e400, float("nan"), 2**31, 2**63, 10**400, "", "x" * 3000, "\ud800",
    "\0", [], {}, [[]], [None], {"a": {}}, "1", -0.0, [1] * 500, "Ready",
)  # fmt: skip


def make_body(chance: random.Random) -> bytes:
    """The body of one message: bytes, damaged JSON, or JSON with odd values."""
    match chance.randrange(6):
        case 0:
            return chance.randbytes(chance.randrange(200))
        case 1:
            return b"[" * chance.randrange(4000) + b'{"a":' * chance.randrange(800)
        case 2:
            body = bytearray(json.dumps(chance.choice(GOOD)).encode())
            for _ in range(chance.randrange(1, 6)):
                body[chance.randrange(len(body))] = chance.randrange(256)
            return bytes(body)
        case 3:
            body = json.dumps(chance.choice(GOOD)).encode()
            return body[: chance.randrange(len(body))]
        case 4:
            digits = b"9" * chance.randrange(1, 4000)
            return b'{"type":"demand","id":' + digits + b"}"
    return json.dumps(_odd(dict(chance.choice(GOOD)), chance)).encode()


def make_stream(chance: random.Random) -> bytes:
    """One message on the wire: with a length that may lie."""
    body = make_body(chance)
    length = chance.choice((len(body), len(body), len(body) + 1, 0, 2**32 - 1, 4096, 4097))
    return length.to_bytes(4, "little") + body


def _odd(document: dict, chance: random.Random) -> dict:
    for _ in range(chance.randrange(1, 4)):
        key = chance.choice([*document, "".join(chance.choices(string.printable, k=3))])
        inner = document.get(key)
        is_deeper = isinstance(inner, dict) and inner and chance.random() < 0.7
        document[key] = _odd(dict(inner), chance) if is_deeper else chance.choice(ODD)
    return document
