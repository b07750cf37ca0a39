"""The token of a version's source: pure."""

from __future__ import annotations

from modelcache_api import names
from modelcache_operator.ports.keyed_data import KeyedData
from modelcache_operator.sources.access import parse_text


def parse_token(data: KeyedData, name: str) -> str:
    """The token in a Secret's data.

    Raises:
        SourceError: SecretInvalid, naming the key and never the value.
    """
    return parse_text(data, names.SECRET_HUB_TOKEN, name)
