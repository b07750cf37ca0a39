"""A store on loopback that answers by the hostile grammar, and the cases to fetch from it."""

from __future__ import annotations

import asyncio
import random
import re
import socket
import struct
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from fakes.fetch_world import random_body, safetensors_body
from fakes.hostile_grammar import NEVER, Answer, Ask, honest, make_answer
from modelcache_api.manifest import PIECE_BYTES, SourceFile

SECRET = "5ec2e7" * 8
SIGNATURE = f"X-Amz-Signature={SECRET}"
_RANGE = re.compile(rb"\r\nRange: bytes=(\d+)-(\d+)\r\n", re.IGNORECASE)
_NAMES = ("model.safetensors", "w.bin", "config.json", "a b/\u00fc.txt", "1_P/x.gguf", "%2e%2e/q?#")
# A stalled connection is held at most this long; the fetcher must have hung up long before.
_STALL_SECONDS = 20.0


@dataclass
class Case:
    """What one seed stands for: objects, what is known of them, and how long the store is bad."""

    seed: int
    sources: dict[str, SourceFile] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    is_pinned: bool = False
    bad_answers: int = 0
    """For each file; honest ones follow."""
    repeats: bool = False
    """True if all bad answers for one file are alike."""
    jobs: list[list[str]] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    given: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, seed: int) -> Case:
        rng = random.Random(f"case {seed}")
        case = cls(seed, is_pinned=rng.random() < 0.6, bad_answers=rng.choice((1, 2, 3, 99, 99)))
        case.repeats = rng.random() < 0.3
        names = rng.sample(_NAMES, rng.choices((1, 2, 3), weights=(5, 3, 2))[0])
        are_twins = rng.random() < 0.3
        size, tag = rng.randint(300, 6000), rng.choice((None, '"twin"'))
        for number, name in enumerate(names):
            if not are_twins:
                size, tag = _size(rng), rng.choice((None, 'W/"weak"', f'"v{number}"', '"a-2"'))
            case.bodies[name] = body = _body(name, size, seed * 10 + number)
            case.sources[name] = SourceFile(name, len(body), tag)
        middle = rng.randint(0, len(names))
        case.jobs = [part for part in (names[:middle], names[middle:]) if part]
        return case

    def answer(self, target: str, start: int, end: int) -> Answer:
        """The next answer for the file that this target names."""
        name = unquote(urlsplit(target).path).partition("/")[2].partition("/")[2]
        body = self.bodies.get(name)
        if body is None:
            return Answer("HTTP/1.1 404 Not Found").set("Content-Length", "0")
        count = self.asked[name]
        self.asked[name] += 1
        ask = Ask(target, body, self.sources[name].etag, start, end, self.is_pinned)
        if count >= self.bad_answers:
            self.given.append(f"{name}: honest")
            return honest(ask)
        answer = make_answer(f"{self.seed} {name} {0 if self.repeats else count}", ask)
        self.given.append(f"{name}: {answer.what or 'honest'}")
        return answer

    def __str__(self) -> str:
        kind = "pinned" if self.is_pinned else "not pinned"
        return f"seed {self.seed}, {kind}, {list(self.sources.values())}: {self.given}"


def _size(rng: random.Random) -> int:
    kind = rng.random()
    if kind < 0.01:
        return PIECE_BYTES + rng.randint(0, 5000)
    return rng.randint(0, 20) if kind < 0.05 else rng.randint(300, 6000)


def _body(name: str, size: int, seed: int) -> bytes:
    if name.endswith(".safetensors"):
        return safetensors_body(max(size, 300), seed)
    body = random_body(size, seed)
    return b"GGUF" + body[4:] if name.endswith(".gguf") else body


class HostileStore:
    """`async with HostileStore() as store: store.serve(case)`."""

    def __init__(self) -> None:
        self._cases: dict[int, Case] = {}
        self._handlers: set[asyncio.Task[None]] = set()
        self.answers = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=512)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in tuple(self._handlers):
            task.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        await self._server.wait_closed()

    def serve(self, case: Case) -> None:
        self._cases[case.seed] = case

    def forget(self, case: Case) -> None:
        del self._cases[case.seed]

    def url(self, case: Case, path: str) -> str:
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/{case.seed}/{quote(path)}?{SIGNATURE}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            # Whoever hangs up on a hostile store is right.
            with suppress(OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            self._handlers.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; True if the connection stays."""
        head = await reader.readuntil(b"\r\n\r\n")
        target = head.split(b" ")[1].decode("ascii")
        found = _RANGE.search(head)
        seed = target.partition("/")[2].partition("/")[0]
        case = self._cases.get(int(seed)) if seed.isdigit() else None
        if case is None or found is None:
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return True
        self.answers += 1
        answer = case.answer(target, int(found[1]), int(found[2]) + 1)
        await self._send(answer, writer)
        return await self._end(answer, reader, writer)

    async def _send(self, answer: Answer, writer: asyncio.StreamWriter) -> None:
        data = answer.bytes()
        data = data if answer.cut_at == NEVER else data[: answer.cut_at]
        step = max(1, -(-len(data) // answer.slices))
        starts = [0, answer.split_at] if answer.split_at != NEVER else [*range(0, len(data), step)]
        for start, end in pairwise([*starts, len(data)]):
            if answer.pause and end == len(data):
                await asyncio.sleep(answer.pause)
            writer.write(data[start:end])
            await writer.drain()

    async def _end(
        self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if answer.ending == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        elif answer.ending == "stall":
            async with asyncio.timeout(_STALL_SECONDS):
                await reader.read()
        return answer.ending == "keep" and answer.cut_at == NEVER
