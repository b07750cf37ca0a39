"""A small grammar of what a hostile store may answer to a ranged request. Pure: seed in, bytes out.

An answer is first the honest one; then some of its parts are replaced by wrong ones. Bytes that lie
at their offset of the file are always the file's own unless the answer may deceive: without a known
digest nobody could tell.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fakes.hostile_words import (
    CHUNK_SIZES,
    CODINGS,
    ERROR_BODIES,
    LENGTHS,
    LOCATIONS,
    PAUSES,
    RANGES,
    STATUS_LINES,
    STRAYS,
    TAGS,
)

NEVER = -1


@dataclass(frozen=True)
class Ask:
    """A request as the store sees it."""

    target: str
    body: bytes
    """The whole object."""
    etag: str | None
    start: int
    end: int
    may_deceive: bool
    """True if the fetcher knows the digest, so that wrong bytes must be noticed."""


@dataclass(frozen=True)
class Answer:
    """What is sent, and how the connection ends."""

    status: str = "HTTP/1.1 206 Partial Content"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    before: bytes = b""
    """Interim responses."""
    after: bytes = b""
    """Bytes behind the end of the message."""
    raw: bytes | None = None
    """Instead of all of the above."""
    cut_at: int = NEVER
    """Bytes of the answer after which `ending` happens."""
    ending: str = "keep"
    """keep, close, reset or stall."""
    slices: int = 1
    """In how many writes it is sent."""
    split_at: int = NEVER
    """Where the second and last write begins, instead of `slices`."""
    pause: float = 0.0
    """Seconds before the last write."""
    what: list[str] = field(default_factory=list)
    """The productions used, for whoever reads a failure."""

    def bytes(self) -> bytes:
        if self.raw is not None:
            return self.raw
        lines = [self.status, *(f"{name}: {value}" for name, value in self.headers)]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
        return self.before + head + self.body + self.after

    def set(self, name: str, *values: str) -> Answer:
        kept = tuple(pair for pair in self.headers if pair[0].lower() != name.lower())
        return replace(self, headers=kept + tuple((name, value) for value in values))

    def drop(self, name: str) -> Answer:
        return self.set(name)


Production = Callable[[random.Random, Ask, Answer], Answer]


def honest(ask: Ask) -> Answer:
    part = ask.body[ask.start : ask.end]
    answer = Answer(body=part).set("Content-Length", str(len(part)))
    answer = answer.set("Content-Range", f"bytes {ask.start}-{ask.end - 1}/{len(ask.body)}")
    return answer if ask.etag is None else answer.set("ETag", ask.etag)


def make_answer(seed: str, ask: Ask) -> Answer:
    """The answer that this seed stands for; the same for the same question."""
    rng = random.Random(seed)
    answer = honest(ask)
    wanted = rng.choices((0, 1, 2, 3), weights=(10, 50, 28, 12))[0]
    names = rng.choices(tuple(PRODUCTIONS), weights=[w for _, w in PRODUCTIONS.values()], k=wanted)
    for name in names if ask.may_deceive else _without_forgeries(names):
        answer = PRODUCTIONS[name][0](rng, ask, answer)
        answer.what.append(name)
    return answer


def _without_forgeries(names: list[str]) -> list[str]:
    """Productions that together make a body of the right size from wrong bytes are taken apart."""
    if "frames as body" in names:
        return ["frames as body"]
    if {"short", "document"} & set(names):
        return [name for name in names if name not in ("long", "pipelined")]
    return names


def _length(rng, ask, answer):
    values = [text.format(n=len(answer.body)) for text in rng.choice(LENGTHS)]
    return answer.set("Content-Length", *values)


def _range(rng, ask, answer):
    text = rng.choice(RANGES)
    return answer.set(
        "Content-Range",
        *(
            word.format(s=ask.start, e=ask.end - 1, n=len(ask.body), m=max(0, ask.end - 2))
            for word in text
        ),
    )


def _tag(rng, ask, answer):
    token = (ask.etag or '"none"').removeprefix("W/").strip('"')
    values = [text.format(token=token, target=ask.target) for text in rng.choice(TAGS)]
    return answer.set("ETag", *values)


def _whole(rng, ask, answer):
    """A 200 with the whole object."""
    return (
        replace(answer, status="HTTP/1.1 200 OK", body=ask.body)
        .drop("Content-Range")
        .set("Content-Length", str(len(ask.body)))
    )


def _until_close(rng, ask, answer):
    ending = rng.choice(("close", "close", "stall", "reset"))
    return replace(answer.drop("Content-Length"), ending=ending)


def _chunked(rng, ask, answer):
    """Right chunks, or one of them wrong."""
    size = rng.randint(1 + len(answer.body) // 50, 1 + len(answer.body))
    chunks = [answer.body[i : i + size] for i in range(0, len(answer.body), size)]
    lines = [b"%x" % len(chunk) for chunk in chunks]
    if chunks and rng.random() < 0.5:
        victim = rng.randrange(len(chunks))
        lines[victim] = rng.choice(CHUNK_SIZES).replace(b"N", lines[victim])
    glue = b"\r\n" if rng.random() < 0.9 else rng.choice((b"", b"\n", b"XX"))
    body = b"".join(
        line + b"\r\n" + chunk + glue for line, chunk in zip(lines, chunks, strict=True)
    )
    end = rng.choice((b"0\r\n\r\n",) * 6 + (b"", b"0\r\nX: y\r\n\r\n", b"0\r\n", b"-1\r\nmore\r\n"))
    answer = answer if rng.random() < 0.15 else answer.drop("Content-Length")
    coding = "chunked" if rng.random() < 0.8 else rng.choice(CODINGS)
    return replace(answer, body=body + end).set("Transfer-Encoding", coding)


def _frames_as_body(rng, ask, answer):
    """Chunk framing under a name that a lax reader takes for no framing, cut to the right size."""
    size = len(answer.body)
    if rng.random() < 0.3:
        coding, framed = "chunked", b"-%x\r\n" % (size + 1) + answer.body[:-7] + b"\r\n0\r\n\r\n"
        return replace(answer.drop("Content-Length"), body=framed, ending="close").set(
            "Transfer-Encoding", coding
        )
    framed = b"%x\r\n" % max(1, size) + answer.body
    coding = rng.choice(CODINGS)
    return replace(answer.drop("Content-Length"), body=framed[:size], ending="close").set(
        "Transfer-Encoding", coding
    )


def _encoded(rng, ask, answer):
    coding = rng.choice(("gzip", "aws-chunked", "identity", "br, gzip", ""))
    answer = answer.set("Content-Encoding", coding)
    if coding == "gzip" and rng.random() < 0.5:
        body = gzip.compress(answer.body, mtime=0)
        return replace(answer, body=body).set("Content-Length", str(len(body)))
    return answer


def _wrong_byte(rng, ask, answer):
    if not ask.may_deceive or not answer.body:
        return answer
    body = bytearray(answer.body)
    body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    return replace(answer, body=bytes(body))


def _other_bytes(rng, ask, answer):
    if not ask.may_deceive:
        return answer
    return replace(answer, body=rng.choice((bytes, rng.randbytes))(len(answer.body)))


def _short(rng, ask, answer):
    body = answer.body[: rng.randint(0, len(answer.body))]
    answer = replace(answer, body=body)
    return answer if rng.random() < 0.5 else answer.set("Content-Length", str(len(body)))


def _long(rng, ask, answer):
    body = answer.body + rng.randbytes(rng.randint(1, 900))
    answer = replace(answer, body=body)
    return answer if rng.random() < 0.5 else answer.set("Content-Length", str(len(body)))


def _document(rng, ask, answer):
    """A page, a pointer or an error in place of the bytes, under a success's status."""
    body = rng.choice(ERROR_BODIES)
    answer = replace(answer, body=body).set("Content-Length", str(len(body)))
    if rng.random() < 0.5:
        answer = replace(answer, status="HTTP/1.1 200 OK").drop("Content-Range")
    return answer


def _status(rng, ask, answer):
    body = rng.choice(ERROR_BODIES)
    answer = replace(answer, status=rng.choice(STATUS_LINES), body=body)
    return answer.set("Content-Length", str(len(body))).drop("Content-Range")


def _only_status(rng, ask, answer):
    """Another status over the honest rest."""
    return replace(answer, status=rng.choice(STATUS_LINES))


def _busy(rng, ask, answer):
    status = rng.choice(("503 Slow Down", "429 Too Many Requests", "500 Oops", "408 Late"))
    answer = replace(answer, status=f"HTTP/1.1 {status}", body=b"").set("Content-Length", "0")
    return answer.set("Retry-After", *rng.choice(PAUSES))


def _redirect(rng, ask, answer):
    status = rng.choice(("301 Moved", "302 Found", "303 See", "307 Temporary", "308 For ever"))
    answer = replace(answer, status=f"HTTP/1.1 {status}", body=b"moved").set("Content-Length", "5")
    values = [text.format(target=ask.target) for text in rng.choice(LOCATIONS)]
    return answer.set("Location", *values)


def _stray_headers(rng, ask, answer):
    position = rng.randint(0, len(answer.headers))
    stray = tuple(rng.choices(STRAYS, k=rng.randint(1, 4)))
    return replace(answer, headers=answer.headers[:position] + stray + answer.headers[position:])


def _many_headers(rng, ask, answer):
    if rng.random() < 0.5:
        return answer.set("X-Long", "x" * 70_000)
    return replace(answer, headers=answer.headers + (("X", "y"),) * 120)


def _interim(rng, ask, answer):
    status = rng.choice((b"100 Continue", b"102 Processing", b"103 Early Hints", b"101 Switch"))
    return replace(answer, before=(b"HTTP/1.1 " + status + b"\r\nLink: <a>\r\n\r\n") * 2)


def _noise(rng, ask, answer):
    size = rng.choice((0, 1, 7, 300))
    return replace(answer, raw=rng.choice((rng.randbytes(size), b"\r\n" * size, b"HTTP/1.1 2")))


def _no_head_end(rng, ask, answer):
    return replace(answer, raw=b"HTTP/1.1 206 OK\r\nContent-Length: 5\r\nETag", ending="close")


def _pipelined(rng, ask, answer):
    """Something behind the message: noise, an error, or (where it may) a forged success."""
    extra = rng.choice((rng.randbytes(40), b"\r\n\r\n", b"HTTP/1.1 404 Gone\r\n\r\n"))
    if ask.may_deceive and rng.random() < 0.5:
        extra = replace(honest(ask), body=bytes(ask.end - ask.start)).bytes()
    return replace(answer, after=extra)


def _delivery(rng, ask, answer):
    """It stops at any byte."""
    return replace(
        answer,
        cut_at=rng.randint(0, max(1, len(answer.bytes()))),
        ending=rng.choice(("reset", "close", "reset", "close", "stall")),
    )


def _pieces(rng, ask, answer):
    return replace(answer, slices=rng.randint(2, 12), pause=rng.choice((0.0, 0.0, 0.005)))


PRODUCTIONS: dict[str, tuple[Production, int]] = {
    "length": (_length, 6),
    "range": (_range, 6),
    "tag": (_tag, 6),
    "whole": (_whole, 5),
    "until close": (_until_close, 4),
    "chunked": (_chunked, 9),
    "frames as body": (_frames_as_body, 4),
    "encoded": (_encoded, 3),
    "wrong byte": (_wrong_byte, 4),
    "other bytes": (_other_bytes, 3),
    "short": (_short, 5),
    "long": (_long, 4),
    "document": (_document, 5),
    "status": (_status, 8),
    "only status": (_only_status, 4),
    "busy": (_busy, 5),
    "redirect": (_redirect, 7),
    "stray headers": (_stray_headers, 6),
    "many headers": (_many_headers, 2),
    "interim": (_interim, 4),
    "noise": (_noise, 4),
    "no end of head": (_no_head_end, 1),
    "pipelined": (_pipelined, 5),
    "delivery": (_delivery, 9),
    "pieces": (_pieces, 4),
}
