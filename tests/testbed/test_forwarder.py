"""The door between the host and a network namespace."""

import asyncio
import socket
import subprocess
import sys

import pytest

from modelcache_testbed import forwarder, wait_until
from modelcache_testbed.ports import LOOPBACK

SECONDS = 20


async def shout(reader, writer):
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()
    writer.write(b"end")
    writer.close()


@pytest.fixture
async def door(monkeypatch):
    """A forwarder whose two sides are in one namespace, and so on two ports."""
    inner = await asyncio.start_server(shout, LOOPBACK, 0)
    inner_port = inner.sockets[0].getsockname()[1]
    connect = asyncio.open_connection
    monkeypatch.setattr(
        forwarder.asyncio, "open_connection", lambda host, _port: connect(host, inner_port)
    )
    outer = await asyncio.start_server(forwarder._forward, LOOPBACK, 0)
    async with inner, outer:
        yield outer.sockets[0].getsockname()[1], connect, inner


async def test_bytes_go_both_ways_and_a_half_closed_side_still_reads(door):
    port, connect, _ = door
    reader, writer = await connect(LOOPBACK, port)
    writer.write(b"one\ntwo\n")
    writer.write_eof()
    async with asyncio.timeout(SECONDS):
        assert await reader.read() == b"ONE\nTWO\nend"
    writer.close()


async def test_nobody_behind_the_door_ends_the_call(door):
    port, connect, inner = door
    inner.close()
    reader, writer = await connect(LOOPBACK, port)
    async with asyncio.timeout(SECONDS):
        assert await reader.read() == b""
    writer.close()


def test_the_process_takes_over_sockets_that_are_open(tmp_path):
    listening = socket.create_server((LOOPBACK, 0))
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "modelcache_testbed.forwarder", "--serve", str(ready)]
    descriptor = listening.fileno()
    with subprocess.Popen([*command, str(descriptor)], pass_fds=[descriptor]) as process:
        try:
            wait_until(
                lambda: ready.exists() and ready.read_text() == str(process.pid),
                seconds=SECONDS,
                what="the forwarder",
            )
        finally:
            process.kill()
