"""The library's end of the socket, against an agent that is played byte by byte."""

from __future__ import annotations

import gc
import itertools
import os
import socket
import threading
from types import SimpleNamespace

import pytest

from fakes.socket_bench import READY
from modelcache import agent_socket, live
from modelcache.agent_socket import AgentSocket
from modelcache.volume import Volume
from modelcache_api.names import SocketReason
from modelcache_api.volume_index import INDEX_MAGIC
from modelcache_api.volume_socket import (
    LONGEST_RETURN_SECONDS,
    Done,
    IndexReady,
    Refused,
    SocketProtocolError,
    State,
    Welcome,
    encode_frame,
    encode_message,
)


def descriptors():
    # What other tests have left to be collected, as event loops, closes its own.
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - its own descriptor is counted alike


@pytest.fixture
def agent(tmp_path):
    """A listener, and what it sends after the client's request."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        yield path, listener


def answer(listener, *pieces):
    """Say hello, wait for a request, and send pieces: frames, or frames with descriptors."""

    def play():
        line, _address = listener.accept()
        with line:
            line.sendall(encode_message(Welcome(1)) + encode_message(State(READY)))
            while b"index" not in line.recv(4096):
                pass
            for frame, count in pieces:
                sent = [os.memfd_create("played") for _ in range(count)]
                for descriptor in sent:
                    os.write(descriptor, INDEX_MAGIC)
                socket.send_fds(line, [frame], sent)
                for descriptor in sent:
                    os.close(descriptor)
            line.recv(1)

    thread = threading.Thread(target=play)
    thread.start()
    return thread


def test_a_descriptor_belongs_to_its_message_whatever_else_arrives_with_it(agent):
    path, listener = agent
    before = descriptors()
    newer = encode_frame({"type": "gpu", "descriptors": 2})
    thread = answer(
        listener,
        (encode_message(State(READY)) + encode_message(Done(9)), 0),
        (newer, 2),
        (encode_message(State(READY)) + encode_message(IndexReady(1, 8)), 1),
    )
    line = AgentSocket(path)
    index = line.index()
    assert index[:] == INDEX_MAGIC
    index.close()
    line.close()
    thread.join(20)
    assert descriptors() == before


@pytest.mark.parametrize(
    ("frame", "count"),
    [
        pytest.param(encode_message(IndexReady(1, 8)), 0, id="fewer than told"),
        pytest.param(encode_message(Done(1)), 5, id="more than any message has"),
    ],
)
def test_descriptors_that_are_not_as_told_end_the_line_and_none_stays(agent, frame, count):
    path, listener = agent
    before = descriptors()
    thread = answer(listener, (frame, count))
    line = AgentSocket(path)
    with pytest.raises(SocketProtocolError, match="descriptors"):
        line.index()
    line.close()
    thread.join(20)
    assert descriptors() == before


def test_who_is_hung_up_on_before_it_says_hello_hears_why(agent, monkeypatch):
    path, listener = agent

    def refuse(**_given):
        line, _address = listener.accept()
        with line:
            line.sendall(encode_message(Refused(SocketReason.TOO_MANY_CONNECTIONS, "enough")))
        return b"hello"

    monkeypatch.setattr(agent_socket, "encode_hello", refuse)
    line = AgentSocket(path)
    with pytest.raises(SocketProtocolError, match="TooManyConnections: enough"):
        line.drain()
    line.close()


@pytest.mark.parametrize("chance", [0.0, 0.999])
def test_a_process_comes_back_within_the_time_that_agents_grant_it(tmp_path, monkeypatch, chance):
    now, tries = [0.0], []

    def knock(_path):
        tries.append(now[0])
        raise FileNotFoundError

    monkeypatch.setattr(live, "AgentSocket", knock)
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(live, "random", SimpleNamespace(random=lambda: chance))
    volume = live.LiveVolume(Volume(tmp_path))
    for _ in range(1000):
        assert not volume.is_connected
        now[0] += 0.125
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert LONGEST_RETURN_SECONDS / 3 <= max(gaps) <= LONGEST_RETURN_SECONDS + 0.125
