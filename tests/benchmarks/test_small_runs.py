"""Figures of the client library run from end to end, at sizes that say nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="an agent that locks memory is root")


def run(program, scale="0.001"):
    environment = dict(os.environ, MODELCACHE_BENCH_SCALE=scale)
    done = subprocess.run(
        [sys.executable, *program],
        cwd=BENCHMARKS,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@ROOT_ONLY
def test_first_touch_and_attach_run_and_a_scaled_run_is_not_kept():
    kept = BENCHMARKS / "out" / "attach.json"
    before = kept.read_bytes() if kept.exists() else None
    said = run(["run.py", "first-touch", "attach"])
    for row in ("plain map", "read() into a buffer", "bare echo, loading", "1000000 tensors, 1 GB"):
        assert row in said
    assert "times a bare echo" in said
    assert "these figures say nothing, and are not kept" in said
    assert (kept.read_bytes() if kept.exists() else None) == before


def test_readers_of_the_library_share_what_they_read(tmp_path):
    program = (
        "import readers_memory as r; from pathlib import Path; from disk_to_host import make_model;"
        "path = make_model(Path('%s'), 64 << 20); r.warm(path);"
        "print(r.measure_one('ours', path, 2).pss / path.stat().st_size)"
    )
    [share] = run(["-c", program % tmp_path]).split()
    assert 0.9 < float(share) < 1.5, "once, and not once for each"
