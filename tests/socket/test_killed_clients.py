"""Clients that are killed in the middle of anything leave nothing behind.

`make fuzz-nightly` kills among a thousand.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from fakes import killed_clients
from modelcache_testbed.waiting import wait_until

ATTACHES = int(os.environ.get("MODELCACHE_KILLED_CLIENTS", "100"))
# The index is made and code is loaded by then.
AT_FIRST = 20
BODY = bytes(1 << 20)


def holds(path: Path) -> list[str]:
    """Locks and leases on the file, by anybody."""
    inode = str(path.stat().st_ino)
    lines = Path("/proc/locks").read_text().splitlines()
    return [line for line in lines if line.split()[-3].endswith(f":{inode}")]


def test_no_descriptor_map_lock_or_byte_stays_behind(bench):
    folder = bench.add()
    header = json.dumps(
        {"w": {"dtype": "U8", "shape": [len(BODY)], "data_offsets": [0, len(BODY)]}}
    )
    header += " " * (-len(header) % 8)
    blob = folder.model / "model.safetensors"
    blob.write_bytes(len(header).to_bytes(8, "little") + header.encode() + BODY)
    content = blob.read_bytes()

    def attach(count, seed):
        command = [sys.executable, killed_clients.__file__, str(folder.content)]
        found = subprocess.run(
            [*command, str(count), str(seed)], capture_output=True, text=True, check=True
        )
        wait_until(lambda: bench.counters.connections == 0, seconds=30, what="all to be gone")
        return [int(word) for word in found.stdout.split()]

    def count():
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        maps = sum("modelcache" in line for line in Path("/proc/self/maps").read_text().split("\n"))
        return descriptors, maps, bench.counters.index_bytes, blob.stat().st_nlink

    attach(AT_FIRST, 0)
    before, memory = count(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    killed, ended = attach(ATTACHES, 1)
    assert killed > ATTACHES / 10
    assert killed + ended == ATTACHES
    assert bench.counters.accepted > ATTACHES / 2
    assert count() == before
    assert holds(blob) == []
    assert blob.read_bytes() == content
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 30 << 10
    assert "TooSlow" not in bench.counters.refusals
