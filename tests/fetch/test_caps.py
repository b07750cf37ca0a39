"""What the engine may use: a cap on bandwidth, and fair shares of the streams."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from fakes.fault_proxy import Fault
from fakes.fetch_world import (
    Grants,
    LeapingClock,
    content_of,
    make_job,
    plain_url,
    quick,
    random_body,
    until,
)
from fakes.range_server import Served
from modelcache_agent.decide.bandwidth import Bandwidth
from modelcache_agent.decide.transfer_plan import StallPolicy
from modelcache_agent.fetch import FetchCancelledError, FetchEngine
from modelcache_api.manifest import SourceFile

MIB = 1 << 20
CRAWL = Bandwidth(64 * 1024)


def serve(server, bodies):
    for path, body in bodies.items():
        server.objects[path] = Served.of(body)
    return {path: SourceFile(path, len(body), "v1") for path, body in bodies.items()}


def jobs_of(sources, tmp_path):
    """One job for each first folder of the paths."""
    names = sorted({path.partition("/")[0] for path in sources})
    return {
        name: make_job(
            {path: source for path, source in sources.items() if path.startswith(f"{name}/")},
            tmp_path / name,
            uid=name,
        )
        for name in names
    }


async def test_the_cap_holds_over_all_streams_and_the_bytes_are_right(server, tmp_path):
    clock, cap = LeapingClock(), Bandwidth(4 * MIB)
    body = random_body(40 * MIB)
    sources = serve(server, {"m.bin": body})
    begin = clock.monotonic()
    async with FetchEngine(
        Grants(sources, server.url), quick(bandwidth=cap), clock=clock
    ) as engine:
        outcome = await engine.fetch(make_job(sources, tmp_path / "p"))
    assert outcome.files[0].content == content_of("m.bin", body)
    assert clock.monotonic() - begin >= (len(body) - cap.burst_bytes) / cap.bytes_per_second
    assert engine.counters().retries == {}


async def test_waiting_for_bandwidth_is_no_stall(server, tmp_path):
    """Each stream gets half of the least rate that the stall policy would tolerate."""
    sources = serve(server, {f"{number}.bin": random_body(2 * MIB) for number in range(8)})
    config = quick(
        streams=8,
        bandwidth=Bandwidth(8 * MIB),
        stall=StallPolicy(window_seconds=0.4, min_bytes_per_second=2 * MIB),
    )
    async with FetchEngine(Grants(sources, server.url), config) as engine:
        outcome = await engine.fetch(make_job(sources, tmp_path / "p"))
    assert outcome.failure is None
    assert engine.counters().retries == {}


async def test_a_server_that_stalls_is_noticed_under_a_cap_too(server, proxy, tmp_path):
    sources = serve(server, {"m.bin": random_body(2 * MIB)})
    proxy.script("m.bin", Fault(stall_after=MIB), times=1)
    config = quick(bandwidth=Bandwidth(64 * MIB))
    async with FetchEngine(Grants(sources, plain_url(proxy.endpoint)), config) as engine:
        outcome = await engine.fetch(make_job(sources, tmp_path / "p"))
    assert outcome.failure is None
    assert list(engine.counters().retries) == ["TransferStalled"]


async def test_a_stopped_job_leaves_the_cap_at_once_and_another_goes_on(server, tmp_path):
    sources = serve(server, {f"{name}/m.bin": random_body(MIB) for name in ("stops", "stays")})
    jobs = jobs_of(sources, tmp_path)
    async with FetchEngine(Grants(sources, server.url), quick(bandwidth=CRAWL)) as engine:
        tasks = {name: asyncio.create_task(engine.fetch(job)) for name, job in jobs.items()}
        await until(lambda: engine.counters().network_bytes or len(server.requests) > 1)
        begin = time.monotonic()
        await engine.cancel("stops")
        results = await asyncio.gather(tasks["stops"], return_exceptions=True)
        assert isinstance(results[0], FetchCancelledError)
        assert not tasks["stays"].done()
        await engine.cancel("stays")
        await asyncio.gather(tasks["stays"], return_exceptions=True)
        # At this rate one buffer fills in 16 s: both were interrupted while they waited.
        assert time.monotonic() - begin < 8


async def test_many_small_files_of_one_model_are_not_starved_by_another_ones_large(
    server, proxy, tmp_path
):
    """Each request of the large model takes long; the small ones must not wait for one each."""
    bodies = {f"small/{number}.json": random_body(500, number) for number in range(40)}
    sources = serve(server, {"large/m.bin": random_body(192 * MIB)} | bodies)
    proxy.script("large/m.bin", Fault(trickle=(MIB, 0.1)))
    jobs = jobs_of(sources, tmp_path)
    config = quick(streams=4, part_pieces=1)
    async with FetchEngine(Grants(sources, plain_url(proxy.endpoint)), config) as engine:
        large = asyncio.create_task(engine.fetch(jobs["large"]))
        await until(lambda: proxy.gets["large/m.bin"] >= 4)
        before = proxy.gets["large/m.bin"]
        assert (await engine.fetch(jobs["small"])).failure is None
        assert proxy.gets["large/m.bin"] - before < 12
        large.cancel()


async def test_two_large_models_are_fetched_side_by_side(server, proxy, tmp_path):
    """One has one file, the other many; neither is far behind when the first is done.

    How equal the shares are is FairShare's, and proved there; files cost the disk's time too.
    """
    one = {"one/m.bin": random_body(48 * MIB)}
    many = {f"many/{number}.bin": random_body(8 * MIB, number) for number in range(6)}
    sources = serve(server, one | many)
    for path in sources:
        proxy.script(path, Fault(trickle=(MIB, 0.04)))
    config = quick(streams=4, part_pieces=1)
    async with FetchEngine(Grants(sources, plain_url(proxy.endpoint)), config) as engine:
        jobs = jobs_of(sources, tmp_path).values()
        tasks = [asyncio.create_task(engine.fetch(job)) for job in jobs]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        sent = Counter({"one": 0, "many": 0})
        for path, size in tuple(proxy.body_bytes.items()):
            sent[path.strip("/").partition("/")[0]] += size
        await asyncio.gather(*tasks)
    assert set(sent) == {"one", "many"}
    assert min(sent.values()) > 0.3 * max(sent.values())


async def test_bytes_are_counted_for_namespace_and_server_useful_or_not(server, proxy, tmp_path):
    body = random_body(2 * MIB)
    sources = serve(server, {"m.bin": body})
    proxy.script("m.bin", Fault(close_after=MIB), times=1)
    grants = Grants(sources, plain_url(proxy.endpoint))
    job = make_job(sources, tmp_path / "p", namespace="team-a")
    async with FetchEngine(grants, quick()) as engine:
        assert (await engine.fetch(job)).failure is None
        counted = engine.counters()
        assert counted.egress == {("team-a", proxy.endpoint): counted.network_bytes}
        assert len(body) < counted.network_bytes <= len(body) + MIB
        engine.keep_egress(frozenset(), frozenset())
        assert engine.counters().egress == {}
