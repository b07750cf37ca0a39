"""Malformed messages: no crash, bounded memory, a reason for each.

`make fuzz-nightly` sends a million; a failing case prints its seed.
"""

from __future__ import annotations

import gc
import os
import random
import socket
import tracemalloc
from collections import Counter
from pathlib import Path

from fakes.hostile_messages import make_stream
from modelcache_api.names import SocketReason
from modelcache_api.volume_index import INDEX_MAGIC, BadIndexError, encode_file_head, read_index
from modelcache_api.volume_socket import (
    MAX_MESSAGE_BYTES,
    MAX_REQUEST_BYTES,
    FrameBuffer,
    SocketProtocolError,
    choose_version,
    encode_hello,
    parse_hello,
    parse_message,
    parse_request,
)
from modelcache_testbed.waiting import wait_until

MESSAGES = int(os.environ.get("MODELCACHE_FUZZ_MESSAGES", "20000"))
INDEX = "modelcache-index"
ON_THE_LINE = MESSAGES // 50
# Over what the interpreter and the test itself take.
MOST_BYTES = 4 << 20
TAKEN = "taken"


def read_all(stream: bytes, limit: int, parse) -> None:
    buffer = FrameBuffer(limit)
    for begin in range(0, len(stream), 4096):
        buffer.feed(stream[begin : begin + 4096])
        while (body := buffer.take()) is not None:
            parse(body)


ENDS = (
    (MAX_REQUEST_BYTES, lambda body: choose_version(parse_hello(body))),
    (MAX_REQUEST_BYTES, parse_request),
    (MAX_MESSAGE_BYTES, parse_message),
)


def judge(seed: int) -> str:
    """What becomes of the case: taken, or its reason."""
    limit, parse = ENDS[seed % len(ENDS)]
    try:
        read_all(make_stream(random.Random(seed)), limit, parse)
    except SocketProtocolError as error:
        is_told = error.reason in set(SocketReason) and 0 < len(error.message) < 200
        return error.reason if is_told else f"seed {seed}: {error!r}"
    except Exception as error:  # noqa: BLE001 - the very thing that is looked for
        return f"seed {seed}: {error!r}"
    return TAKEN


def test_each_malformed_message_has_a_reason_and_none_is_a_crash():
    outcomes = Counter(judge(seed) for seed in range(MESSAGES))
    assert set(outcomes) <= {TAKEN, *SocketReason}
    assert {"MessageTooLarge", "MalformedMessage", "UnknownMessage", "NoHello"} <= set(outcomes)
    assert outcomes[TAKEN] < MESSAGES / 2


def test_memory_stays_bounded_whatever_a_message_claims():
    tracemalloc.start()
    try:
        for seed in range(MESSAGES // 20):
            judge(seed)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


def test_an_index_that_lies_is_an_error_and_reads_nothing_outside_itself():
    good = INDEX_MAGIC + encode_file_head("a.safetensors", 100, 3) + b"{ }"
    for seed in range(MESSAGES // 10):
        chance = random.Random(seed)
        data = bytearray(good * chance.randrange(1, 3))
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        del data[chance.randrange(len(data)) + 1 :]
        try:
            found = list(read_index(memoryview(data)))
        except BadIndexError:
            continue
        assert all(f.header_begin + f.header_bytes <= len(data) for f in found), seed


def count_descriptors():
    """Those of this process, but for the volume's index, which is kept as long as the volume."""
    # What the collector has not closed yet, of what ran before, is no leak.
    gc.collect()
    paths = list(Path("/proc/self/fd").iterdir())
    return sum(INDEX not in str(path.readlink()) for path in paths if path.is_symlink())


def test_the_agent_outlives_each_of_them_and_serves_the_next(bench):
    folder = bench.add()
    before = count_descriptors()
    root = os.open(folder.content, os.O_PATH)
    for seed in range(ON_THE_LINE):
        chance = random.Random(seed)
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(20)
            line.connect(f"/proc/self/fd/{root}/agent.sock")
            try:
                line.sendall(encode_hello() * chance.randrange(2) + make_stream(chance))
                line.shutdown(socket.SHUT_WR)
                while line.recv(65536):
                    pass
            except (BrokenPipeError, ConnectionResetError):
                continue
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(20)
        line.connect(f"/proc/self/fd/{root}/agent.sock")
        line.sendall(encode_hello())
        assert line.recv(65536)
    os.close(root)
    wait_until(lambda: bench.counters.connections == 0, seconds=20, what="all to be gone")
    assert bench.counters.accepted == ON_THE_LINE + 1
    assert sum(bench.counters.refusals.values()) > ON_THE_LINE / 4
    assert count_descriptors() <= before
