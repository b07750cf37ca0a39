"""What clients of a volume's socket may do, and what they may not."""

from __future__ import annotations

import array
import os
import socket
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

import modelcache
from fakes.socket_bench import READY
from modelcache.agent_socket import AgentSocket, wait_readable
from modelcache_agent.decide import socket_rules
from modelcache_agent.socket import connection, door
from modelcache_api import volume_socket
from modelcache_api.names import SocketReason, VolumeState
from modelcache_api.volume_socket import (
    FrameBuffer,
    Refused,
    State,
    Welcome,
    encode_frame,
    encode_hello,
    parse_message,
)
from modelcache_testbed.waiting import wait_until

KEY = "11111111-1111-1111-1111-111111111111/v"


class Client:
    """Speaks bytes, so that it may speak wrongly."""

    def __init__(self, folder) -> None:
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.line.settimeout(30)
        root = os.open(folder.content, os.O_PATH)
        self.line.connect(f"/proc/self/fd/{root}/agent.sock")
        os.close(root)
        self.buffer = FrameBuffer(volume_socket.MAX_MESSAGE_BYTES)

    def say(self, *frames: bytes):
        self.line.sendall(b"".join(frames))
        return self

    def hear(self):
        """The next message; None once the agent has hung up."""
        while (body := self.buffer.take()) is None:
            try:
                data = self.line.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.buffer.feed(data)
        return parse_message(body)[0]

    def greet(self, *, is_control=False):
        self.say(encode_hello(is_control=is_control))
        assert self.hear() == Welcome(1)
        assert isinstance(self.hear(), State)
        return self

    def last_words(self) -> Refused:
        said = self.hear()
        assert self.hear() is None
        return said


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        pytest.param(b"\xff\xff\xff\xff", "MessageTooLarge", id="four gibibytes"),
        pytest.param((4097).to_bytes(4, "little"), "MessageTooLarge", id="one byte too many"),
        pytest.param(b"\x00\x00\x00\x00", "MalformedMessage", id="nothing"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", "MessageTooLarge", id="another protocol"),
        pytest.param(encode_frame({"type": "demand", "id": 1}), "NoHello", id="no greeting"),
        pytest.param(encode_hello((7, 9)), "UnsupportedVersion", id="versions of the future"),
        pytest.param(encode_hello(range(99)), "MalformedMessage", id="too many versions"),
        pytest.param(encode_frame({"type": "hello"}), "MalformedMessage", id="no versions"),
        pytest.param(
            encode_frame({"type": "hello", "versions": [True]}), "MalformedMessage", id="a boolean"
        ),
        pytest.param(
            encode_frame({"type": "hello", "versions": [1], "control": 1}),
            "MalformedMessage",
            id="control is a number",
        ),
    ],
)
def test_who_greets_wrongly_hears_why_and_is_hung_up_on(bench, said, reason):
    words = Client(bench.add()).say(said).last_words()
    assert words.reason == reason
    assert words.message
    assert bench.counters.refusals == {SocketReason(reason): 1}
    wait_until(lambda: bench.counters.connections == 0, seconds=10, what="the end")


def test_an_unknown_request_is_refused_by_itself_and_the_line_goes_on(bench):
    client = Client(bench.add()).greet()
    client.say(encode_frame({"type": "gpu", "id": 4}), encode_frame({"type": "demand", "id": 5}))
    assert client.hear() == Refused("UnknownMessage", "this node's agent knows no such request", 4)
    assert client.hear() == volume_socket.Done(5)
    wait_until(lambda: bench.demands == [READY], seconds=10, what="the demand")


def test_demands_count_once_a_minute_however_often_they_are_said(bench):
    client = Client(bench.add()).greet()
    for number in range(5):
        client.say(encode_frame({"type": "demand", "id": number}))
        assert client.hear() == volume_socket.Done(number)
    wait_until(lambda: bench.demands, seconds=10, what="the demand")
    assert bench.demands == [READY]
    assert bench.counters.demands == 5


def test_a_pod_has_so_many_connections_and_no_more_and_others_have_theirs(bench, monkeypatch):
    folder, other = bench.add(), bench.add("22222222-2222-2222-2222-222222222222/v")
    most = socket_rules.MOST_CONNECTIONS_OF_A_POD
    clients = [Client(folder).greet() for _ in range(most)]
    late = Client(folder).say(encode_hello())
    assert "one attachment of a process" in late.last_words().message
    Client(other).greet()
    clients.pop().line.close()
    wait_until(lambda: bench.counters.readers <= most, seconds=10, what="room")
    Client(folder).greet()
    monkeypatch.setattr(socket_rules, "MOST_CONNECTIONS", 3)
    assert Client(other).say(encode_hello()).last_words().reason == "TooManyConnections"


def test_beyond_them_there_is_room_for_control_which_holds_nothing_and_that_is_bounded(bench):
    folder = bench.add()
    readers = [Client(folder).greet() for _ in range(socket_rules.MOST_CONNECTIONS_OF_A_POD)]
    controls = [
        Client(folder).greet(is_control=True) for _ in range(socket_rules.MOST_CONTROLS_OF_A_POD)
    ]
    crowded = Client(folder).say(encode_hello(is_control=True))
    assert crowded.last_words().reason == "TooManyConnections"
    control = controls[0].say(encode_frame({"type": "hold", "id": 1, "pid": 1, "versions": []}))
    assert control.hear().reason == "ControlOnly"
    assert control.say(encode_frame({"type": "demand", "id": 2})).hear() == volume_socket.Done(2)
    assert bench.counters.attached == 0
    readers.pop().line.close()
    wait_until(lambda: bench.counters.readers < 16, seconds=10, what="room for a reader")
    crowded = Client(folder).say(encode_hello(is_control=True))
    assert crowded.last_words().reason == "TooManyConnections", "that room is another one's"


def test_who_says_nothing_beyond_them_keeps_its_place_for_a_moment_only(bench, monkeypatch):
    folder = bench.add()
    readers = [Client(folder).greet() for _ in range(socket_rules.MOST_CONNECTIONS_OF_A_POD)]
    with monkeypatch.context() as quick:
        quick.setattr(connection, "HELLO_SECONDS", 0.2)
        silent = [Client(folder) for _ in range(socket_rules.MOST_CONTROLS_OF_A_POD)]
        assert {client.last_words().reason for client in silent} == {"TooSlow"}
    wait_until(lambda: bench.counters.connections == len(readers), seconds=10, what="their end")
    Client(folder).greet(is_control=True)


def test_two_hundred_processes_that_begin_at_once_each_hear_whether_they_are_taken(bench):
    """The agent is busy with something else at that moment."""
    folder = bench.add()
    is_free = threading.Event()
    bench.loop.call_soon_threadsafe(is_free.wait)
    try:
        lines = [AgentSocket(folder.socket) for _ in range(200)]
    finally:
        is_free.set()
    said = Counter(hear_fate(line) for line in lines)
    taken = socket_rules.MOST_CONNECTIONS_OF_A_POD
    assert said == {"taken": taken, SocketReason.TOO_MANY_CONNECTIONS: 200 - taken}
    for line in lines:
        line.close()


def hear_fate(line) -> str:
    """What a library's line has become."""
    try:
        while line.progress is None:
            wait_readable(line.fileno(), 30)
            line.drain()
    except volume_socket.SocketProtocolError as error:
        return error.reason
    return "taken"


def hold(number, *uids) -> bytes:
    return encode_frame({"type": "hold", "id": number, "pid": 1, "versions": list(uids)})


def test_a_pod_that_toggles_what_it_holds_wakes_the_loop_at_a_pace_and_the_last_word_counts(bench):
    client, began = Client(bench.add()).greet(), time.monotonic()
    for number in range(60):
        client.say(hold(number, *(() if number % 2 else ("v2",))))
        assert client.hear() == volume_socket.Done(number)
    client.say(hold(60, "v3"))
    assert client.hear() == volume_socket.Done(60)
    assert bench.sockets.uses() == {KEY: {"v3"}}, "it counts at once for whoever looks"
    wait_until(lambda: bench.looks[-1] == {KEY: {"v3"}}, seconds=30, what="the last look")
    pace = socket_rules.USE_PACE
    most = pace.burst + (time.monotonic() - began) / pace.seconds + 1
    assert pace.burst <= len(bench.looks) <= most


def test_a_pod_asks_for_gpu_memory_at_a_pace_and_another_pod_has_its_own(bench, monkeypatch):
    monkeypatch.setattr(door, "DEVICE_PACE", socket_rules.Pace(3, 3600.0))
    client = Client(bench.add()).greet()
    other = Client(bench.add("22222222-2222-2222-2222-222222222222/v")).greet()
    said = []
    for number in range(5):
        client.say(encode_frame({"type": "device", "id": number}))
        said.append(client.hear())
    assert [one.reason for one in said] == ["NotOnDevice"] * 3 + ["TooManyRequests"] * 2
    assert "ask again in 3" in said[-1].message
    other.say(encode_frame({"type": "device", "id": 1}))
    assert other.hear().reason == "NotOnDevice"
    client.say(encode_frame({"type": "demand", "id": 9}))
    assert client.hear() == volume_socket.Done(9), "the line goes on"


@pytest.mark.parametrize("said", [b"", encode_hello()[:3], encode_hello() + b"\x07"])
def test_who_does_not_finish_a_message_is_cut_off(bench, monkeypatch, said):
    monkeypatch.setattr(connection, "HELLO_SECONDS", 0.2)
    monkeypatch.setattr(connection, "MESSAGE_SECONDS", 0.2)
    client = Client(bench.add()).say(said)
    words = [client.hear() for _ in range(3 if len(said) > 10 else 1)]
    assert words[-1].reason == "TooSlow"
    assert client.hear() is None


def test_who_does_not_listen_is_cut_off_and_holds_up_nobody(bench, monkeypatch):
    monkeypatch.setattr(connection, "MESSAGE_SECONDS", 0.2)
    folder = bench.add()
    deaf, good = Client(folder).greet(), Client(folder).greet()
    for number in range(1000):
        progress = replace(READY, message=str(number) * 5000)
        bench.show(KEY, progress)
        heard = good.hear()
        while heard != State(progress):
            heard = good.hear()
        if bench.counters.refusals[SocketReason.TOO_SLOW]:
            break
        time.sleep(0.01)
    assert bench.counters.refusals == {SocketReason.TOO_SLOW: 1}
    deaf.line.close()


def test_changes_that_come_faster_than_they_are_read_become_one(bench):
    client = Client(bench.add()).greet()

    async def burst():
        for weight in range(50):
            await bench.sockets.show({KEY: replace(READY, canary_weight=weight)})

    bench.run(burst())
    assert client.hear() == State(replace(READY, canary_weight=49))


def test_descriptors_that_a_client_sends_are_closed(bench):
    client = Client(bench.add())
    reader, writer = os.pipe()
    rights = array.array("i", [writer] * 16)
    client.line.sendmsg([encode_hello()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    os.close(writer)
    assert client.hear() == Welcome(1)
    assert os.read(reader, 1) == b"", "no end of the pipe is left anywhere"
    os.close(reader)


def test_an_index_is_refused_before_there_is_a_content_and_where_it_would_be_too_large(
    bench, monkeypatch
):
    folder = bench.add()
    (folder.model / "w.safetensors").write_bytes((100).to_bytes(8, "little") + b"{" * 100)
    client = Client(folder).greet()
    bench.show(KEY, replace(READY, state=VolumeState.WAITING))
    assert isinstance(client.hear(), State)
    client.say(encode_frame({"type": "index", "id": 1}))
    assert client.hear().reason == "NotComplete"
    bench.show(KEY, READY)
    assert isinstance(client.hear(), State)
    monkeypatch.setattr("modelcache_agent.socket.indexes.MOST_INDEX_BYTES", 50)
    client.say(encode_frame({"type": "index", "id": 2}))
    assert client.hear().reason == "IndexTooLarge"
    monkeypatch.undo()
    client.say(encode_frame({"type": "index", "id": 3}))
    assert client.hear().size_bytes == bench.counters.index_bytes > 100
    bench.remove(KEY)
    assert bench.counters.index_bytes == 0


def test_a_library_that_is_refused_says_so_and_reads_the_path(bench):
    folder = bench.add(canary_weight=40)
    clients = [Client(folder).greet() for _ in range(socket_rules.MOST_CONNECTIONS_OF_A_POD)]

    def attach():
        attachment = modelcache.attach(root=folder.content)
        wait_until(
            lambda: attachment.weights() and attachment.fallbacks, seconds=10, what="the refusal"
        )
        return attachment

    with pytest.warns(modelcache.FallbackWarning, match="may have no more"):
        attachment = attach()
    assert attachment.weights() == {"stable": 60, "canary": 40}
    assert clients
    with attachment:
        pass
    assert attachment.weights() == {"stable": 60, "canary": 40}, "the last that was heard"
