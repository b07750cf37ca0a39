from __future__ import annotations

import asyncio

import pytest

from fakes.source_world import FakeKeyedData, make_version
from modelcache_operator.decide.allowed_sources import AllowList
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.by_scheme import SourcesByScheme, make_sources


class Some:
    made = 0
    closed = 0

    def __init__(self):
        Some.made += 1

    async def resolve(self, version, revision):
        return version.spec.source.uri

    async def close(self):
        Some.closed += 1


async def test_each_kind_is_made_once_and_when_it_is_needed():
    sources = SourcesByScheme({"hf": Some, "s3": pytest.fail})
    assert Some.made == 0
    uris = ["hf://a", "hf://b"]
    found = await asyncio.gather(*(sources.resolve(make_version(uri)) for uri in uris))
    assert (found, Some.made) == (uris, 1)
    await sources.close()
    assert Some.closed == 1


async def test_another_scheme_is_no_source():
    sources = SourcesByScheme({"s3": Some, "hf": Some})
    with pytest.raises(SourceError, match=r"SourceInvalid: .* s3://, hf://"):
        await sources.resolve(make_version("oci://x"))


async def test_all_kinds_that_we_have_refuse_what_is_not_allowed():
    sources = make_sources(FakeKeyedData(), lambda: AllowList(()))
    for uri in ("s3://models/m", "hf://org/name", "https://host/m/", "http://host/m.gguf"):
        for call in (sources.resolve, lambda v: sources.sign(v, (), "0a")):
            with pytest.raises(SourceError, match="SourceNotAllowed"):
                await call(make_version(uri))
    await sources.close()
