"""An answer of the agent that takes its time, and requests that are chosen for meanwhile."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest

import modelcache
from modelcache_agent.decide.gpu.room import Stay
from modelcache_api.names import Reason
from modelcache_testbed.waiting import wait_until

KEY = "11111111-1111-1111-1111-111111111111/v"


@pytest.mark.filterwarnings("ignore::modelcache.FallbackWarning")
def test_requests_follow_the_weight_while_gpu_memory_is_waited_for(bench):
    asked, may_answer = threading.Event(), threading.Event()

    async def hand_over(*_which):
        asked.set()
        await asyncio.to_thread(may_answer.wait, 60)
        return Stay(Reason.WAITING, "the version is not in GPU memory")

    bench.sockets.hand_over = hand_over
    folder = bench.add(canary_weight=0)
    with modelcache.attach(root=folder.content, on_miss="raise") as attachment:
        live = attachment._live
        waiting = threading.Thread(target=live.device)
        waiting.start()
        try:
            assert asked.wait(30)
            assert attachment.choose("a") == "stable"
            bench.show(KEY, replace(bench.shown[KEY], canary_weight=100))
            wait_until(lambda: attachment.choose("a") == "canary", seconds=30, what="the weight")
            assert waiting.is_alive(), "the answer is still to come"
        finally:
            may_answer.set()
            waiting.join(60)
        assert not waiting.is_alive()
        assert attachment.choose("a") == "canary"
