"""Node labels: one key for each (namespace, ModelVersion, content), free of collisions."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

from modelcache_api.names import NODE_LABEL_PREFIX

_READABLE_LENGTH: Final = 40
_HASH_LENGTH: Final = 16
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def make_node_label_key(namespace: str, name: str, content_digest: str) -> str:
    """The label key of one verified content.

    The readable part helps people; identity lies in the hash alone, whose input is unambiguous
    (a JSON list), so that `a-b`/`c` and `a`/`b-c` differ.
    """
    identity = json.dumps([namespace, name, content_digest], ensure_ascii=True)
    suffix = hashlib.sha256(identity.encode()).hexdigest()[:_HASH_LENGTH]
    readable = _UNSAFE.sub("-", name)[:_READABLE_LENGTH].strip("-._") or "model"
    return f"{NODE_LABEL_PREFIX}{readable}-{suffix}"
