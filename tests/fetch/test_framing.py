"""Answers whose end is uncertain: their bytes are not taken, and nothing behind them is read."""

from __future__ import annotations

import asyncio
import gc
import warnings
from dataclasses import dataclass, field, replace

import pytest

from fakes.fetch_world import Grants, LeapingClock, make_job, quick, random_body
from fakes.hostile_grammar import Answer, Ask, honest
from fakes.hostile_store import Case, HostileStore
from modelcache_agent.decide.transfer_plan import StallPolicy
from modelcache_agent.fetch import FetchEngine
from modelcache_api.manifest import SourceFile
from modelcache_api.names import Reason

SIZE = 1000
BODY = random_body(SIZE)
CUT = BODY[:-20]
CONFIG = quick(streams=1, file_attempts=2, stall=StallPolicy(0.3, 1))


@dataclass
class Scripted(Case):
    """Answers the n-th request for a file by the n-th answer, and honestly from there on."""

    script: dict[str, list[Answer]] = field(default_factory=dict)

    @classmethod
    def serving(cls, *paths: str, **script: list[Answer]) -> Scripted:
        case = cls(seed=1, script={name.replace("_", "."): value for name, value in script.items()})
        for number, path in enumerate(paths):
            case.bodies[path] = random_body(SIZE, number)
            case.sources[path] = SourceFile(path, SIZE)
        return case

    def answer(self, target, start, end):
        path = target.partition("?")[0].rpartition("/")[2]
        count, self.asked[path] = self.asked[path], self.asked[path] + 1
        script = self.script.get(path, [])
        ask = Ask(target, self.bodies[path], None, start, end, may_deceive=True)
        return script[count] if count < len(script) else honest(ask)


HONEST = honest(Ask("", BODY, None, 0, SIZE, may_deceive=True))


def chunked(body: bytes, coding: str = "chunked", **changes) -> Answer:
    answer = HONEST.drop("Content-Length").set("Transfer-Encoding", coding)
    return Answer(answer.status, answer.headers, body, **changes)


def plain(answer: Answer, body: bytes, **changes) -> Answer:
    return Answer(answer.status, answer.headers, body, **changes)


WHOLE_CHUNK = b"%x\r\n" % SIZE + BODY + b"\r\n"
TAIL = b"\r\n0\r\n\r\n"

UNCERTAIN = [
    pytest.param(
        chunked(b"-5\r\n" + BODY[: SIZE - len(TAIL)] + TAIL, ending="close"),
        "connection broke",
        id="a chunk of negative size that runs on into the framing",
    ),
    pytest.param(
        chunked(WHOLE_CHUNK + b"-1\r\nmore\r\n", ending="close"),
        "connection broke",
        id="a chunk of negative size behind the last byte",
    ),
    pytest.param(
        chunked(b"3de\r\n" + BODY[: SIZE - 5], "gzip, chunked", ending="close"),
        "transfer coding is not known",
        id="frames of an unknown transfer coding, as long as the file",
    ),
    pytest.param(
        chunked(b"3de\r\n" + BODY[: SIZE - 5], "chunked ", ending="close"),
        "transfer coding is not known",
        id="frames of a coding with a space behind its name",
    ),
    pytest.param(
        chunked(WHOLE_CHUNK + b"0\r\n\r\n").set("Content-Length", str(SIZE)),
        "chunked and has a length",
        id="chunks and a length",
    ),
    pytest.param(
        plain(HONEST.set("Content-Length", str(SIZE), "7"), BODY), "two lengths", id="two lengths"
    ),
    pytest.param(
        plain(HONEST.set("Content-Length", "+1000"), BODY), "no number", id="a length with a sign"
    ),
    pytest.param(chunked(WHOLE_CHUNK, ending="close"), "end of the answer", id="no last chunk"),
    pytest.param(
        plain(HONEST.drop("Content-Length"), BODY + BODY, cut_at=0), "connection broke", id="cut"
    ),
]


async def fetch(case, directory, config=CONFIG):
    """The outcome of one job, or of one job for each path list of `case.jobs`."""
    async with HostileStore() as server:
        server.serve(case)
        grants = Grants(case.sources, lambda path: server.url(case, path))
        async with FetchEngine(grants, config, LeapingClock()) as engine, asyncio.timeout(20):
            outcomes = []
            for number, paths in enumerate(case.jobs or [list(case.sources)]):
                sources = {path: case.sources[path] for path in paths}
                job = make_job(sources, directory / str(number), uid=f"uid-{number}")
                outcomes.append(await engine.fetch(job))
            return outcomes


@pytest.mark.parametrize(("answer", "words"), UNCERTAIN)
async def test_an_answer_without_a_certain_end_is_not_taken(tmp_path, answer, words):
    case = Scripted.serving("m.bin", m_bin=[answer] * 2)
    [outcome] = await fetch(case, tmp_path)
    assert outcome.failure.reason == Reason.TRANSFER_FAILED
    assert words in outcome.failure.message


@pytest.mark.parametrize(("answer", "words"), UNCERTAIN)
async def test_an_uncertain_answer_is_asked_for_again(tmp_path, answer, words):
    [outcome] = await fetch(Scripted.serving("m.bin", m_bin=[answer]), tmp_path)
    assert outcome.failure is None
    assert outcome.files[0].partial_path.read_bytes() == BODY


async def test_broken_chunks_of_an_error_are_no_crash(tmp_path):
    body = b"-1\r\n" + bytes(40_000)
    refused = Answer("HTTP/1.1 403 Forbidden", body=body, ending="close")
    refused = refused.set("Transfer-Encoding", "chunked")
    [outcome] = await fetch(Scripted.serving("m.bin", m_bin=[refused] * 2), tmp_path)
    assert outcome.failure.reason == Reason.AUTH_FAILED


@pytest.mark.parametrize("status", ["103 Early Hints", "101 Switch", "204 No Content"])
async def test_what_follows_an_answer_without_a_body_is_not_the_next_files(tmp_path, status):
    """A kept connection would give one file's late bytes to the next file of the same size."""
    late = Answer(HONEST.status, HONEST.headers, BODY, before=f"HTTP/1.1 {status}\r\n\r\n".encode())
    late = replace(late, pause=0.05, split_at=len(late.before))
    case = Scripted.serving("a.bin", "b.bin", a_bin=[late])
    case.jobs = [["a.bin"], ["b.bin"]]
    first, second = await fetch(case, tmp_path)
    assert first.failure.reason == Reason.SOURCE_ERROR
    assert second.failure is None
    assert second.files[0].partial_path.read_bytes() == case.bodies["b.bin"]


async def test_a_redirect_that_cannot_be_sent_leaves_no_connection_open(tmp_path):
    moved = Answer("HTTP/1.1 302 Found").set("Content-Length", "0").set("Location", "/\u00e9")
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always", ResourceWarning)
        [outcome] = await fetch(Scripted.serving("m.bin", m_bin=[moved] * 2), tmp_path)
        gc.collect()
    assert outcome.failure.reason == Reason.TRANSFER_FAILED
    assert [str(complaint.message) for complaint in complaints] == []


async def test_a_pause_after_a_pause_of_the_whole_job_ends(tmp_path):
    """The pause of the job is over while files wait: the own pause of one of them ends too."""
    busy = Answer("HTTP/1.1 503 Slow").set("Content-Length", "0").set("Retry-After", "5")
    broken = Answer("HTTP/1.1 500 Oops").set("Content-Length", "0")
    case = Scripted.serving("a.bin", "b.bin", a_bin=[busy, broken], b_bin=[busy, broken])
    [outcome] = await fetch(case, tmp_path, quick(streams=1))
    assert outcome.failure is None
