from __future__ import annotations

from modelcache_operator.adapters.manifest_cache import WeighedCache


def test_the_least_recently_used_goes_first_until_the_weight_fits():
    cache: WeighedCache[str] = WeighedCache(10)
    cache.put("a", "A", 4)
    cache.put("b", "B", 4)
    assert cache.get("a") == "A"
    cache.put("c", "C", 4)
    assert [cache.get(key) for key in "abc"] == ["A", None, "C"]
    cache.put("d", "D", 11)
    assert cache.get("d") is None
    assert cache.get("a") == "A"
    cache.put("a", "A2", 10)
    assert [cache.get(key) for key in "ac"] == ["A2", None]
    cache.drop("a")
    cache.drop("a")
    cache.put("e", "E", 10)
    assert cache.get("e") == "E"
