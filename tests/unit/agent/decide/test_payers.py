"""Whom the bytes of a version are counted for."""

from __future__ import annotations

import pytest

from modelcache_agent.decide.payers import find_payer
from modelcache_api.names import EntryOrigin
from modelcache_api.v1alpha1.cache_node import CacheRef


def a_cache(namespace, uid, origin=EntryOrigin.PLACEMENT, **more):
    return CacheRef(namespace=namespace, name="c", stable_uid=uid, origin=origin, **more)


@pytest.mark.parametrize(
    ("caches", "payer"),
    [
        pytest.param((), "", id="nobody is named"),
        pytest.param((a_cache("b", "u"), a_cache("a", "other")), "b", id="who wants it"),
        pytest.param((a_cache("b", "u"), a_cache("a", "u")), "a", id="the first of several"),
        pytest.param(
            (a_cache("b", "u"), a_cache("a", "u", EntryOrigin.DEMAND)), "b", id="who placed it"
        ),
        pytest.param((a_cache("b", "other", canary_uid="u"),), "b", id="whose canary it is"),
        pytest.param((a_cache("b", "other", held_uids=("u",)),), "b", id="who holds it"),
    ],
)
def test_whom_bytes_are_counted_for(caches, payer):
    assert find_payer("u", caches) == payer
