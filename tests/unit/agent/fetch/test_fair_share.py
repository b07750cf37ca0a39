"""Which job a free stream goes to."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fakes.fetch_world import make_job
from modelcache_agent.decide.transfer_plan import Part
from modelcache_agent.fetch.fair_share import FairShare
from modelcache_agent.fetch.file_state import FileState
from modelcache_agent.fetch.job_state import FetchPart, JobState
from modelcache_api.manifest import PIECE_BYTES, SourceFile

PIECES = 1000


def a_job(uid: str) -> JobState:
    source = SourceFile("m.bin", PIECES * PIECE_BYTES, "v1")
    job = make_job({"m.bin": source}, Path("/nowhere"), uid=uid)
    return JobState(job, [FileState(job.files[0], None, None)])


class Streams:
    """Streams that take parts of `sizes[uid]` pieces from endless jobs, one piece a step."""

    def __init__(self, count: int, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.share = FairShare()
        self.jobs: dict[str, JobState] = {}
        self.left: list[list] = [[0, None] for _ in range(count)]
        self.read = dict.fromkeys(sizes, 0)

    def step(self) -> None:
        for stream in self.left:
            if stream[0] == 0:
                self.choose(stream)
            stream[0] -= 1
            self.read[stream[1].spec.uid] += 1

    def choose(self, stream) -> None:
        if stream[1] is not None:
            stream[1].active -= 1
        job = self.share.order(self.jobs.values())[0]
        size = self.sizes[job.spec.uid]
        self.share.charge(FetchPart(job, job.files[0], Part(0, size)))
        job.active += 1
        stream[:] = [size, job]

    def submit(self, uid: str) -> None:
        self.jobs[uid] = a_job(uid)


@given(st.integers(1, 9), st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_no_job_starves_whatever_the_numbers_of_streams_and_the_sizes_of_parts(count, pieces):
    sizes = {f"job-{number}": size for number, size in enumerate(pieces)}
    streams = Streams(count, sizes)
    for uid in sizes:
        streams.submit(uid)
    for _ in range(400):
        streams.step()
    equal = 400 * count / len(sizes)
    # A part is not interrupted: where jobs outnumber streams, small parts wait for large ones.
    wait = 1 if count >= len(pieces) else max(pieces) / min(pieces)
    assert min(streams.read.values()) >= 0.5 * equal / wait


def test_with_one_stream_jobs_take_turns_by_bytes():
    streams = Streams(1, {"small": 1, "large": 4})
    streams.submit("small")
    streams.submit("large")
    for _ in range(400):
        streams.step()
    assert abs(streams.read["small"] - streams.read["large"]) <= 8


def test_who_comes_late_is_owed_nothing_for_the_time_before():
    streams = Streams(1, {"early": 4, "late": 4})
    streams.submit("early")
    for _ in range(400):
        streams.step()
    streams.submit("late")
    for _ in range(80):
        streams.step()
    assert streams.read["late"] <= 48
    assert streams.read["late"] >= 32
