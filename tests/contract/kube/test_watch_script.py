"""The rarer turns of a watch, played by a transport that follows a script."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from modelcache_kube import CACHE_NODES, ApiUnavailable, Forbidden
from modelcache_kube.backoff import Backoff
from modelcache_kube.watching import Watcher


def node(name, version, uid="u"):
    return {"metadata": {"name": name, "resourceVersion": str(version), "uid": uid}}


def page(version, *items):
    return {"metadata": {"resourceVersion": str(version)}, "items": list(items)}


def line(kind, obj):
    return {"type": kind, "object": obj}


GONE = line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


class ScriptEnded(Exception):  # noqa: N818
    pass


class ScriptedTransport:
    """Answers each request with the next item: a page, a list of lines, or an error."""

    def __init__(self, *script):
        self._script = list(script)
        self.asked = []

    def _next(self, verb, version):
        self.asked.append((verb, version))
        if not self._script:
            raise ScriptEnded
        step = self._script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    async def request(self, _method, _path, *, query, **_rest):
        return self._next("list", query.get("resourceVersion"))

    @asynccontextmanager
    async def stream(self, _path, *, query, **_rest):
        step = self._next("watch", query["resourceVersion"])
        yield self._lines(step)

    async def _lines(self, step):
        for item in step:
            if isinstance(item, Exception):
                raise item
            yield item


async def play(*script, on_error=None):
    """(what was told, what was asked, how long was waited)."""
    transport, waits, told = ScriptedTransport(*script), [], []

    async def sleep(seconds):
        waits.append(seconds)

    watcher = Watcher(
        transport,
        CACHE_NODES,
        None,
        {},
        on_error=on_error,
        sleep=sleep,
        uniform=lambda _low, high: high,
    )

    async def follow():
        async for change, obj in watcher.events():
            told.append((str(change), obj.get("metadata", {}).get("name")))

    with pytest.raises(ScriptEnded):
        await follow()
    return told, transport.asked, waits


async def test_a_stream_that_ends_goes_on_where_it_was():
    told, asked, waits = await play(
        page(5),
        [line("ADDED", node("a", 6)), line("BOOKMARK", {"metadata": {"resourceVersion": "9"}})],
    )
    assert told == [("SYNCED", None), ("ADDED", "a")]
    assert asked == [("list", None), ("watch", "5"), ("watch", "9")]
    assert waits == []


async def test_a_broken_stream_goes_on_where_it_was_after_a_wait():
    _, asked, waits = await play(page(5), [line("ADDED", node("a", 6)), ApiUnavailable("cut")])
    assert asked == [("list", None), ("watch", "5"), ("watch", "6")]
    assert waits == [0.5]


async def test_gone_in_the_stream_lists_at_once():
    told, asked, waits = await play(
        page(5, node("a", 1), node("b", 1)), [GONE], page(9, node("a", 7)), []
    )
    assert told == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("SYNCED", None),
        ("DELETED", "b"),
        ("MODIFIED", "a"),
        ("SYNCED", None),
    ]
    assert asked[:4] == [("list", None), ("watch", "5"), ("list", None), ("watch", "9")]
    assert waits[:1] == [0.5]  # for the last stream, which ended without a word


async def test_a_stream_that_ends_without_a_word_is_an_error():
    errors = []
    bookmark = line("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    await play(page(5), [bookmark], [], on_error=errors.append)
    assert [str(error) for error in errors] == ["the watch ended without a word"]


async def test_a_watch_that_cannot_be_opened_asks_for_a_new_list():
    # A server restored from a backup does not know the version and would refuse it for ever.
    _, asked, _ = await play(page(5), ApiUnavailable("504: too large resource version"), page(2))
    assert asked == [("list", None), ("watch", "5"), ("list", None), ("watch", "2")]


async def test_an_object_that_was_replaced_is_deleted_and_added():
    told, _, _ = await play(page(5, node("a", 1, "u1")), [GONE], page(9, node("a", 8, "u2")))
    assert told[2:4] == [("DELETED", "a"), ("ADDED", "a")]


async def test_waits_double_and_honour_retry_after():
    refused = [Forbidden("rights not there yet"), ApiUnavailable("x"), ApiUnavailable("y")]
    _, _, waits = await play(*refused, ApiUnavailable("busy", retry_after=7), *refused)
    assert waits == [0.5, 1.0, 2.0, 7.0, 8.0, 16.0, 30.0]


async def test_the_wait_starts_anew_once_something_was_heard():
    bookmark = line("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    down = ApiUnavailable("down")
    _, _, waits = await play(down, down, page(5), [bookmark, down], down)
    assert waits == [0.5, 1.0, 0.5, 1.0]


def test_an_absurd_retry_after_is_capped():
    backoff = Backoff(0.5, 30.0, lambda _low, high: high)
    assert backoff.next_delay(1e9) == 30.0
