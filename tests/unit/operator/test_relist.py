"""Lists beside the watches: a chunk at a time, and what has vanished is forgotten."""

from __future__ import annotations

from modelcache_kube import ApiUnavailable, KubeClient
from modelcache_operator.adapters import relist
from modelcache_operator.adapters.parsing import ObservedKind
from modelcache_operator.adapters.relist import Relister
from modelcache_operator.adapters.watch_cache import WatchCache


class Chunks:
    """Stands in for the transport: lists of Nodes in chunks, all others empty.

    `script` are chunks, or errors in their place.
    """

    def __init__(self, *script: object) -> None:
        self.script = list(script)
        self.queries: list[dict[str, str]] = []

    async def request(self, method, path, *, verb, plural, query):
        if plural != "nodes":
            return {"metadata": {"resourceVersion": "9"}}
        self.queries.append(dict(query))
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        more = {"continue": f"after-{step[-1]}"} if step[-1] != "last" else {}
        return {"items": [_node(name) for name in step], "metadata": {**more}}


def _node(name: str):
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}}


def _names(cache: WatchCache) -> list[str]:
    return sorted(key.name for key in cache.snapshot(ObservedKind.NODES))


def _relister(cache: WatchCache, chunks: Chunks) -> Relister:
    return Relister(KubeClient(chunks), cache, on_resources_back=lambda: None)


async def test_a_list_comes_in_chunks_that_need_not_be_in_memory_together():
    cache, chunks = WatchCache(), Chunks(["n1", "n2"], ["n3", "last"])
    await _relister(cache, chunks).list_all()
    assert _names(cache) == ["last", "n1", "n2", "n3"]
    assert cache.is_synced
    first, second = chunks.queries
    assert int(first["limit"]) <= 200
    assert (first.get("continue"), second["continue"]) == (None, "after-n2")


async def test_what_an_unfinished_list_lacks_is_not_taken_for_gone(monkeypatch):
    monkeypatch.setattr(relist, "_RETRY_SECONDS", 0.0)
    cache = WatchCache()
    await _relister(cache, Chunks(["n1", "n2", "last"])).list_all()
    broken = Chunks(["n1"], ApiUnavailable("away"), ["n1", "last"])
    seen = []
    broken_request = broken.request

    async def request(*args, **query):
        seen.append(_names(cache))
        return await broken_request(*args, **query)

    broken.request = request
    await _relister(cache, broken).list_all()
    assert seen[2] == ["last", "n1", "n2"]
    assert _names(cache) == ["last", "n1"]
